"""Axis names and tensor shapes, used by every signature in the package.

| axis        | meaning                                                                  |
|-------------|--------------------------------------------------------------------------|
| `batch`     | sequences                                                                |
| `query`     | tokens that attend                                                       |
| `key`       | tokens attended to; with a cache, all cached tokens                      |
| `stored`    | the keys of a cache, where `key` counts the new ones                     |
| `head`      | query heads                                                              |
| `kv_head`   | key/value heads; `head` is a multiple of it unless the groups are uneven |
| `key_dim`   | size of one head's query or key vector                                   |
| `value_dim` | size of one head's value vector                                          |
| `d_model`   | width of the residual stream                                             |

`#` in front of a name (`#batch`) is jaxtyping's notation for an axis that may be 1 and broadcasts.
"""

from __future__ import annotations

from jaxtyping import Bool, Float, Int
from torch import Tensor

Tokens = Float[Tensor, "batch token width"]
Queries = Float[Tensor, "batch head query key_dim"]
Keys = Float[Tensor, "batch kv_head key key_dim"]
Values = Float[Tensor, "batch kv_head key value_dim"]
StoredKeys = Float[Tensor, "batch kv_head stored key_dim"]
StoredValues = Float[Tensor, "batch kv_head stored value_dim"]
HeadOutputs = Float[Tensor, "batch head query value_dim"]
Weights = Float[Tensor, "batch head query key"]

Allowed = Bool[Tensor, "#batch #head #query #key"]
ScoreBias = Float[Tensor, "#batch #head #query #key"]
Positions = Int[Tensor, "#batch token"]
