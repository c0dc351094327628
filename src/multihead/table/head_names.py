"""Head names: L3H7, or decoder.L3H7 in a model with several stacks.

>>> parse("decoder.L3H7"), parse("3.7"), parse((3, 7))
(('decoder', 3, 7), (None, 3, 7), (None, 3, 7))
"""

from __future__ import annotations

import re

from multihead.errors import SizeError

HeadName = str | tuple[int, int] | tuple[str, int, int]

_NAME = re.compile(r"^(?:(?P<stack>[A-Za-z_]\w*)\.)?L?(?P<layer>\d+)(?:\.|H)(?P<head>\d+)$")


def parse(name: HeadName) -> tuple[str | None, int, int]:
    """The parts of a head's name: (stack or None, layer, head) of `L3H7`, `3.7`, `decoder.L3H7` or (3, 7)."""
    if isinstance(name, str):
        match = _NAME.match(name.strip())
        if match is not None:
            return match["stack"], int(match["layer"]), int(match["head"])
    elif isinstance(name, tuple) and all(type(n) is int for n in name[-2:]):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
        if len(name) == 2:
            return None, name[0], name[1]
        if len(name) == 3 and isinstance(name[0], str):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
            return name[0], name[1], name[2]
    raise SizeError(
        f"{name!r} is not a head name",
        hint="write L3H7, 3.7, (3, 7), or decoder.L3H7 in a model with several stacks",
    )
