"""BUILD: the attention layer that every variant fits in.

Code that observes attention imports these names: `Problem`, the inputs of one attention; `attend`, which computes
it; and `weights_of`, the attention weights of some heads and rows.
"""

from multihead.layer._attend import attend
from multihead.layer._problem import Groups, Problem
from multihead.layer.outputs import weights_of

__all__ = ["Groups", "Problem", "attend", "weights_of"]
