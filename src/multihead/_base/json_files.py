"""Read JSON files that may be missing, damaged or hostile."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from multihead.errors import MultiheadError


def read_json(path: Path, *, hint: str) -> Any:
    """The value in a JSON file; errors name the file."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise MultiheadError(f"there is no {path.name} in {path.parent}", hint=hint) from None
    except OSError as error:
        raise MultiheadError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    except (ValueError, RecursionError) as error:  # also of a path with a null character
        raise MultiheadError(f"{path} is not JSON: {error}", hint=hint) from error


def read_json_object(path: Path, *, hint: str) -> dict[str, Any]:
    """The object in a JSON file."""
    data = read_json(path, hint=hint)
    if not isinstance(data, dict):
        raise MultiheadError(f"{path} must hold a JSON object, got {data!r:.40}", hint=hint)
    return cast(dict[str, Any], data)
