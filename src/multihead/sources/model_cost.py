"""`mh.cost` of everything that `mh.load_pretrained` reads, without loading weights.

>>> import multihead as mh
>>> mh.cost("embedded", tokens=96).parameters == mh.cost(mh.embedded()[0], tokens=96).parameters
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multihead._base.user_function import is_function
from multihead.measures.cost.cost import Cost
from multihead.measures.cost.cost import cost as cost_of_sizes
from multihead.measures.cost.spec import Spec
from multihead.sources.pretrained import EMBEDDED, SAVED, model_folder

if TYPE_CHECKING:
    import torch
    from torch import nn


def cost(
    model: str | Path | nn.Module | Spec | Sequence[Spec],
    *,
    batch: int = 1,
    tokens: int | None = None,
    source: int | None = None,
    dtype: str | torch.dtype = "bf16",
    causal: bool | None = None,
) -> Cost:
    """Count the parameters, FLOPs and bytes of the attention of a model. No weights are read.

    Args:
        model: a known name (`multihead cost --list`); a folder, of which config.json or multihead.json is read;
            "org/name" on the hub, of which only the config is downloaded; "embedded"; "module:function"; a
            module; or sizes, as one `Spec` or several.
        batch: sequences at a time.
        tokens: sequence length; default: 2048, or what the model can read if that is less.
        source: length of the encoder's sequence; default: the model's, or `tokens`.
        dtype: of the activations and the cache: "bf16", "fp32", "fp16", "fp8", "int8", or a torch.dtype.
        causal: overrides the causality read from a module; affects only the visible pairs and the cache.

    Returns:
        A `Cost`, which prints as a table: `cost.parameters`, `cost.flops`, `cost.total.cache_bytes`.

    Raises:
        MultiheadError: if the name is unknown, or a config does not tell the layout of the attention: then load the
            model and pass it.
        SizeError: if a size is not positive, or the dtype is unknown.

    >>> import multihead as mh
    >>> before = mh.cost("llama-2-7b", tokens=4096)
    >>> before.parameters, before.total.cache_bytes
    (2147483648, 2147483648)
    >>> before.compare(before.grouped(8))["KV cache"].ratio
    0.25
    """
    options: dict[str, Any] = {
        "batch": batch, "tokens": tokens, "source": source, "dtype": dtype, "causal": causal,
    }  # fmt: skip
    if not isinstance(model, str | Path):
        return cost_of_sizes(model, **options)
    name = str(model)
    if is_function(name) and not Path(name).is_dir():
        from multihead.sources.user_model import user_model  # imports torch, which known names do not need

        return replace(cost_of_sizes(user_model(name).model.eval(), **options), name=name)
    if name == EMBEDDED or (Path(name) / SAVED).is_file():
        from multihead.store.load import structure  # imports torch, which known names do not need

        folder = model_folder(name)
        shown = name if name == EMBEDDED else folder.name
        return replace(cost_of_sizes(structure(folder), **options), name=shown)
    return cost_of_sizes(model, **options)
