"""Where `from torch.nn import MultiheadAttention` becomes `from multihead.dropin import MultiheadAttention`."""

from __future__ import annotations

from multihead.layer.dropin import MultiheadAttention, replace_all

__all__ = ["MultiheadAttention", "replace_all"]
