"""BUILD: the attention layer that every variant fits in.

These names are for code that looks at attention from outside: the problem that a layer solves, the function that
solves it, and the attention weights of some heads and rows.
"""

from multihead.layer._attend import attend
from multihead.layer._problem import Groups, Problem
from multihead.layer.outputs import weights_of

__all__ = ["Groups", "Problem", "attend", "weights_of"]
