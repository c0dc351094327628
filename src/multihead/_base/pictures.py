"""Matrices as images for a notebook: attention maps, and measures of heads by heads.

>>> import numpy as np
>>> from multihead._base.pictures import map_picture
>>> '<img class="multihead-map" width="260" height="156"' in map_picture(np.ones((3, 5)))
True
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from html import escape

import numpy as np
from jaxtyping import Float, UInt8

from multihead._base.colours import viridis
from multihead._base.html import STYLE

INK = (31, 111, 180)

Cells = Float[np.ndarray, "down across"]


def map_picture(weights: Cells, *, side: int = 260, alt: str = "attention map") -> str:
    """Weights 0 … 1 as an image on a transparent background; opacity is the square root of the weight."""
    shades = np.round(255 * np.sqrt(np.clip(np.nan_to_num(weights), 0, 1))).astype(np.uint8)
    return _img(png(shades, bytes(INK) * 256, bytes(range(256))), shades.shape, side, alt)


def measure_picture(cells: Cells, *, side: int = 320, alt: str = "heads by heads") -> str:
    """Values 0 … 1 from dark to bright (viridis); cells that are not finite are transparent."""
    known = np.isfinite(cells)
    shades = np.where(known, 1 + np.round(254 * np.clip(np.nan_to_num(cells), 0, 1)), 0).astype(np.uint8)
    return _img(png(shades, _viridis_palette(), b"\0" + b"\xff" * 255), shades.shape, side, alt)


def pooled(weights: Cells, most: int) -> Float[np.ndarray, "fewer_down fewer_across"]:
    """Max-pool to at most `most` cells along each side."""
    down, across = (_bin_starts(n, most) for n in weights.shape)
    return np.maximum.reduceat(np.maximum.reduceat(weights, down, axis=0), across, axis=1)


def png(shades: UInt8[np.ndarray, "down across"], palette: bytes, alpha: bytes) -> bytes:
    """An 8-bit palette PNG (RFC 2083): `palette` and `alpha` per colour, `shades` indexes them."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    down, across = shades.shape
    rows = np.pad(shades, ((0, 0), (1, 0)))  # each row starts with its filter type: 0, none
    return b"".join([
        b"\x89PNG\r\n\x1a\n", chunk(b"IHDR", struct.pack(">IIBBBBB", across, down, 8, 3, 0, 0, 0)),
        chunk(b"PLTE", palette), chunk(b"tRNS", alpha), chunk(b"IDAT", zlib.compress(rows.tobytes(), 9)),
        chunk(b"IEND", b""),
    ])  # fmt: skip


def _bin_starts(count: int, limit: int) -> list[int]:
    bins = min(count, limit)
    return [i * count // bins for i in range(bins)]


def _viridis_palette() -> bytes:
    return b"\0\0\0" + b"".join(bytes.fromhex(viridis(i / 254)[1:]) for i in range(255))


def _img(file: bytes, shape: tuple[int, ...], side: int, alt: str) -> str:
    down, across = shape
    wide = side if across >= down else max(1, round(side * across / down))
    high = max(1, round(wide * down / across))
    return (
        f'{STYLE}<img class="multihead-map" width="{wide}" height="{high}" alt="{escape(alt)}" '
        f'src="data:image/png;base64,{b64encode(file).decode()}">'
    )
