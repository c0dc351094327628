"""Figures for papers and slides: each function gives a matplotlib Figure, and pyplot knows nothing of it.

>>> import torch
>>> import multihead as mh
>>> figure = mh.figure.map(torch.tensor([[1.0, 0.0], [0.25, 0.75]]), ["the", "cat"])
>>> figure.savefig("map.pdf")  # doctest: +SKIP
"""

from multihead.figure.heads import grid
from multihead.figure.maps import layer, map
from multihead.figure.pairs import alike
from multihead.figure.quality import curve

__all__ = ["grid", "map", "layer", "alike", "curve"]
