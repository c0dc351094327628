"""Cov(c) of what goes into W_O, per layer, summed over batches in fp64: how far heads stand in for each other.

>>> import torch, multihead as mh
>>> from multihead.edit.choosing.contexts import contexts
>>> model = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True).eval()
>>> (layer,) = mh.anatomy(model)
>>> covariance = contexts(model, [[layer]], [{"src": torch.randn(2, 7, 12)}])["L0"]
>>> covariance.shape                                      # heads · value_dim
torch.Size([12, 12])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

import torch
from jaxtyping import Float64
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Inputs
from multihead.corpus.data_parallel import shard
from multihead.edit.fitting.square import Square
from multihead.errors import MultiheadError
from multihead.model.anatomy import LayerAnatomy
from multihead.model.call import Call, Compute
from multihead.model.forward import Forward
from multihead.model.intercept import inner
from multihead.model.sites import Key

Covariance = Float64[Tensor, "column column"]
Turns = Sequence[Sequence[LayerAnatomy]]
"""Attentions that have one set of weights in common stand together; most stand alone."""


class _Sums:
    """Σ c cᵀ, Σ c and the tokens of one attention."""

    def __init__(self) -> None:
        self.cc = Square()
        self.c: Tensor | None = None
        self.tokens = 0

    def add(self, c: Float64[Tensor, "token column"]) -> None:
        self.cc.add(c)
        self.c = c.sum(0) if self.c is None else self.c.add_(c.sum(0))
        self.tokens += len(c)


def outputs_of_real_rows(call: Call, heads: HeadOutputs) -> Float64[Tensor, "token column"]:
    """Outputs of the heads of one call side by side, a row for every real token."""
    return heads.transpose(1, 2).flatten(2)[call.real_rows].double()  # token, head · value_dim


def contexts(
    model: nn.Module, layers: Turns, batches: Iterable[Inputs], *, progress: Callable[[int], None] | None = None
) -> dict[str, Covariance]:
    """The covariance of the heads' outputs, by the name of the first of the layers that share weights."""
    place: dict[Key, str] = {layer.site.key: same[0].name for same in layers for layer in same}
    sums = {name: _Sums() for name in place.values()}

    gated = {layer.path: layer for same in layers for layer in same if layer.gated}
    calls: dict[str, Call] = {}

    def listen(call: Call, run: Compute) -> HeadOutputs:
        heads = run()
        name = place.get(call.key)
        calls[call.path] = call
        if name is not None and call.path not in gated:
            sums[name].add(outputs_of_real_rows(call, heads))
        return heads

    def reads(layer: LayerAnatomy) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        """A hook of W_O: the heads' outputs with their gate."""

        def read(module: nn.Module, args: tuple[Tensor, ...]) -> None:
            call, columns = calls[layer.path], [i for slots in layer.weights["o"].heads for i in slots.indices()]
            name = place.get(call.key)
            if name is not None:
                outputs = args[0].reshape(*call.real_rows.shape, -1)[..., columns]
                sums[name].add(outputs[call.real_rows].double())

        return read

    mine, summed = shard(batches)
    forward = Forward(model)
    with ExitStack() as stack, forward.listening(listen):
        for layer in gated.values():
            module = inner(model).get_submodule(layer.weights["o"].module)
            stack.callback(module.register_forward_pre_hook(reads(layer)).remove)
        for done, batch in enumerate(mine, start=1):
            forward.run(batch)
            if progress is not None:
                progress(done)
    found: dict[str, Covariance] = {}
    for name, s in sums.items():
        cc = s.cc.whole()
        if cc is None or s.c is None or not s.tokens:
            raise MultiheadError(f"{name} did not run on the calibration text", hint="does the text reach it?")
        tokens = torch.tensor(s.tokens, dtype=torch.float64, device=cc.device)
        summed(cc, s.c, tokens)
        mean = s.c / tokens
        found[name] = cc / tokens - mean[:, None] * mean
    return found
