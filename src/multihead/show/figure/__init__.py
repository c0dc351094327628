"""Figures for papers and slides: each function returns a matplotlib Figure that pyplot does not manage.

>>> import torch
>>> import multihead as mh
>>> figure = mh.figure.attention(torch.tensor([[1.0, 0.0], [0.25, 0.75]]), ["the", "cat"])
>>> figure.savefig("map.pdf")  # doctest: +SKIP
"""

from multihead._base.lazy_names import listed_names
from multihead.show.figure.figures import attention, curve, grid, layer, similarity

__all__ = ["attention", "curve", "grid", "layer", "similarity"]
__dir__ = listed_names(__name__)
