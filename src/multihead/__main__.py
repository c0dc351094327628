"""`python -m multihead`: the same as `multihead`."""

from __future__ import annotations

import sys

from multihead.cli import main

if __name__ == "__main__":
    sys.exit(main())
