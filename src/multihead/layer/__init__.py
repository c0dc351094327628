"""BUILD: the attention layer that every variant fits in.

Options and outputs of the layer, initial weights (`init`), the drop-in replacement of torch's layer (`dropin`).
Code that observes attention imports `Problem`, the inputs of one attention; `attend`, which computes it; and
`weights_of`, the attention weights of some heads and rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multihead.layer import dropin, init
    from multihead.layer._attend import attend
    from multihead.layer._problem import Groups, Problem
    from multihead.layer.latent import LatentAttention
    from multihead.layer.layer_options import QKNorm, Sinks
    from multihead.layer.outputs import Ask, AttentionOutput, Cells, weights_of
else:
    from multihead._base.lazy_names import lazy_names

    __getattr__, __dir__ = lazy_names(
        __name__,
        "multihead.layer.latent:LatentAttention",
        "multihead.layer.layer_options:QKNorm",
        "multihead.layer.layer_options:Sinks",
        "multihead.layer.outputs:Ask",
        "multihead.layer.outputs:Cells",
        "multihead.layer.outputs:AttentionOutput",
        "multihead.layer.init",
        "multihead.layer.dropin",
        "multihead.layer._problem:Groups",
        "multihead.layer._problem:Problem",
        "multihead.layer._attend:attend",
        "multihead.layer.outputs:weights_of",
    )

__all__ = [
    "LatentAttention",
    "QKNorm",
    "Sinks",
    "Ask",
    "Cells",
    "AttentionOutput",
    "init",
    "dropin",
    "Groups",
    "Problem",
    "attend",
    "weights_of",
]
