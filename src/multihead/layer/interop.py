"""Convert the weights of other layers to MultiHeadAttention and back, bit for bit.

>>> import torch, multihead as mh
>>> from torch import nn
>>> attn = mh.interop.from_torch(nn.MultiheadAttention(64, 4, batch_first=True))
>>> gpt2 = {"c_attn.weight": torch.randn(64, 192), "c_attn.bias": torch.randn(192),
...         "c_proj.weight": torch.randn(64, 64), "c_proj.bias": torch.randn(64)}
>>> attn = mh.interop.from_state_dict(gpt2, num_heads=4)  # recognised as "conv1d"
>>> attn
MultiHeadAttention(...)
>>> list(mh.interop.to_state_dict(attn, "grouped"))
['query_key_value.weight', 'dense.weight', 'query_key_value.bias', 'dense.bias']

Query head h reads kv head `h // group_size` in every layout here; order="modulo" reads and writes `h % kv_heads`.
"""

from multihead._base.lazy_names import listed_names
from multihead.layer._from_module import from_module
from multihead.layer._layouts import LAYOUTS, Layout, linears
from multihead.layer._rotary_config import rotary_candidates
from multihead.layer._state_dicts import from_state_dict, from_torch, recognise, to_state_dict, to_torch

__all__ = [
    "LAYOUTS",
    "Layout",
    "from_module",
    "from_state_dict",
    "from_torch",
    "linears",
    "recognise",
    "rotary_candidates",
    "to_state_dict",
    "to_torch",
]
__dir__ = listed_names(__name__)
