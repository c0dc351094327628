"""Cov(z) of the heads' outputs, which W_O reads, per layer: how far heads stand in for each other.

>>> import torch, multihead as mh
>>> from multihead.edit.choosing.head_covariance import head_covariance
>>> model = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True).eval()
>>> (layer,) = mh.anatomy(model)
>>> covariance = head_covariance(model, [[layer]], [{"src": torch.randn(2, 7, 12)}])["L0"]
>>> covariance.shape                                      # heads · value_dim
torch.Size([12, 12])
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Inputs, PerSite, State
from multihead.corpus.data_parallel import shard
from multihead.corpus.documents import Corpus
from multihead.corpus.run import run
from multihead.errors import MultiheadError
from multihead.model.anatomy import LayerAnatomy
from multihead.model.call import Call
from multihead.model.sites import Site
from multihead.model.statistics.cross_moments import CrossMoments, Square

Turns = Sequence[Sequence[LayerAnatomy]]
"""Attentions that have one set of weights in common stand together; most stand alone."""


class HeadCovariance(PerSite[CrossMoments]):
    """The moments of the outputs of all heads of some layers side by side, over real tokens."""

    name = "head_covariance"

    def __init__(self, layers: Turns) -> None:
        super().__init__()
        self.layers = layers
        self._wanted = {layer.site.key for same in layers for layer in same}

    def make(self, site: Site) -> CrossMoments:
        return CrossMoments()

    def restore(self, site: Site, state: State) -> CrossMoments:
        return CrossMoments.from_state(state)

    def add(self, call: Call, out: HeadOutputs) -> None:
        if call.key in self._wanted:
            self.of_call(call).add(outputs_of_real_rows(call, out))

    def moments(self) -> dict[str, CrossMoments]:
        """By the name of the first of the layers that share weights; all of these count."""
        return {same[0].name: self._merged(same) for same in self.layers}

    def _merged(self, same: Sequence[LayerAnatomy]) -> CrossMoments:
        ran = [self.of[layer.site.key] for layer in same if layer.site.key in self.of]
        if not sum(one.count for one in ran):
            raise MultiheadError(
                f"{same[0].name} did not run on the calibration text", hint="does the text reach it?"
            )
        if len(ran) == 1:
            return ran[0]
        total = CrossMoments()
        for one in ran:
            total.merge(one)
        return total


def outputs_of_real_rows(call: Call, out: HeadOutputs) -> Float[Tensor, "token column"]:
    """The outputs of the heads of one call side by side, a row for every real token."""
    return out.transpose(1, 2).flatten(2)[call.real_rows]  # token, head · value_dim


def head_covariance(
    model: nn.Module, layers: Turns, batches: Iterable[Inputs], *, progress: Callable[[int], None] | None = None
) -> dict[str, Square]:
    """The covariance of the heads' outputs, by the name of the first of the layers that share weights."""
    mine, all_reduce = shard(batches)
    sums = HeadCovariance(layers)

    def tell(batches: float) -> None:
        if progress is not None:
            progress(int(batches))

    run(model, Corpus(model, mine, part_batches=len(mine)), [sums], progress=tell)
    moments = sums.moments()
    for one in moments.values():
        one.all_reduce(all_reduce)
    return {name: one.covariance() for name, one in moments.items()}
