"""Find the attentions of a model by running it once on a small example.

>>> import torch
>>> from multihead.model.find_sites import find_sites
>>> model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(12, 3, batch_first=True), 2)
>>> [site.label for site in find_sites(model)]
['L0', 'L1']
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from multihead._base.arguments import check_model
from multihead._base.shapes import HeadOutputs
from multihead.errors import ModelRunError, MultiheadError
from multihead.model.active_interceptions import isolated
from multihead.model.call import Call, Compute
from multihead.model.compiled import inner
from multihead.model.example_inputs import example_inputs
from multihead.model.forward import Forward
from multihead.model.sites import Sites


def find_sites(model: nn.Module, inputs: Mapping[str, Any] | None = None) -> Sites:
    """All attentions that run on `inputs`; by default on a small example made for the model."""
    check_model(model)
    example = example_inputs(inner(model)) if inputs is None else inputs
    sites = Sites()

    def listen(call: Call, compute: Compute) -> HeadOutputs:
        sites.register(call.site)
        return compute()

    with torch.random.fork_rng(devices=[]), isolated():
        try:
            Forward(model)(example, listen, sharded=True)
        except Exception as wrong:
            if isinstance(wrong, MultiheadError) and not isinstance(wrong, ModelRunError):
                raise
            shapes = {name: tuple(x.shape) for name, x in example.items() if isinstance(x, torch.Tensor)}
            reason = wrong.__cause__ if isinstance(wrong, ModelRunError) else wrong
            raise MultiheadError(
                f"{type(inner(model)).__name__} does not run on the example made for it, {shapes}: {reason}",
                hint="pass sites=heads.sites of a capture: with mh.capture(model) as heads: model(**batch)",
            ) from wrong
    return sites
