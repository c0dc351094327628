"""Look at every attention of a model as it passes, and stop the run where enough was seen.

>>> import torch
>>> from transformers import GPT2Config, GPT2Model
>>> from multihead.page.passing import passing
>>> model = GPT2Model(GPT2Config(n_layer=3, n_head=2, n_embd=8, vocab_size=50)).eval()
>>> seen = []
>>> def take(site, call):
...     seen.append(site.label)
...     return site.layer < 1
>>> passing(model, {"input_ids": torch.tensor([[3, 1, 4]])}, take)
>>> seen
['L0', 'L1']
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torch import nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Batch
from multihead.model.call import Call, Compute
from multihead.model.forward import Forward, StopForward
from multihead.model.known import note, seen_sites
from multihead.model.sites import Site


def passing(model: nn.Module, batch: Batch, take: Callable[[Site, Call], bool]) -> None:
    """Run the model; `take` gets every attention, and the run goes on as long as it gives True.

    What `take` gets is the model's own: it is written over as the model runs on, unless it is copied.
    """

    def listen(call: Call, run: Compute) -> HeadOutputs:
        out = run()
        note(model, call)
        site = seen_sites(model)[call.key]
        if not take(replace(site, heads=call.problem.frame.heads, cross=call.cross), call):
            raise StopForward
        return out

    Forward(model)(batch, listen)
