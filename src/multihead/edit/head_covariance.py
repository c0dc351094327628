"""Cov(z) of the heads' outputs, which W_O reads, per layer: how well heads can replace each other.

>>> import torch, multihead as mh
>>> from multihead.edit.head_covariance import head_covariance
>>> model = torch.nn.TransformerEncoderLayer(12, 3, batch_first=True).eval()
>>> (layer,) = mh.anatomy(model)
>>> covariance = head_covariance(model, [[layer]], [{"src": torch.randn(2, 7, 12)}])["L0"]
>>> covariance.shape                                      # heads · value_dim
torch.Size([12, 12])
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Accumulator, Inputs, PerSite, State
from multihead.corpus.data_parallel import shard
from multihead.corpus.documents import Corpus
from multihead.corpus.run import run
from multihead.edit.weight_sets import WeightSets
from multihead.errors import MultiheadError
from multihead.model.active_interceptions import interception_of
from multihead.model.call import Call
from multihead.model.compiled import inner
from multihead.model.layer_anatomy import LayerAnatomy
from multihead.model.sites import Site
from multihead.model.statistics.second_moments import CrossMoments, Square


class HeadCovariance(PerSite[CrossMoments]):
    """The moments of the outputs of all heads of some layers side by side, over real tokens, as W_O reads them.

    Outputs that pass a gate are read at W_O; all others at the kernel.
    """

    name = "head_covariance"

    def __init__(self, layers: WeightSets, model: nn.Module) -> None:
        super().__init__()
        self.layers, self.model = layers, inner(model)
        self._wanted = {layer.site.key for same in layers for layer in same}
        self._gated = {layer.path: layer for same in layers for layer in same if layer.gated}
        self._calls: dict[str, Call] = {}

    def make(self, site: Site) -> CrossMoments:
        return CrossMoments()

    def restore(self, site: Site, state: State) -> CrossMoments:
        return CrossMoments.from_state(state)

    @contextmanager
    def watching(self) -> Generator[None]:
        """Inside the block, gated outputs are read at W_O for the covariance."""
        with ExitStack() as stack:
            for layer in self._gated.values():
                module = self.model.get_submodule(layer.weights["o"].module)
                stack.callback(module.register_forward_pre_hook(partial(self._add_gated, layer)).remove)
            yield
        self._calls.clear()

    def add(self, call: Call, out: HeadOutputs) -> None:
        """Add the head outputs of an attention call to their covariance."""
        if call.path in self._gated:
            self._calls[call.path] = call
        elif call.key in self._wanted:
            self.of_call(call).add(outputs_of_real_rows(call, out))

    def _add_gated(self, layer: LayerAnatomy, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        """Add gated head outputs to the covariance, before W_O runs."""
        call = self._calls.get(layer.path)
        if call is not None and call.key in self._wanted and interception_of(call.module) is not None:
            columns = [index for slots in layer.weights["o"].heads for index in slots.indices()]
            outputs = args[0].reshape(*call.real_rows.shape, -1)[..., columns]
            self.of_call(call).add(outputs[call.real_rows])

    def moments(self) -> dict[str, CrossMoments]:
        """By the name of the weight set, over all of its layers."""
        return {same[0].name: self._merged(same) for same in self.layers}

    def _merged(self, same: Sequence[LayerAnatomy]) -> CrossMoments:
        """The covariance of heads over all attentions with the same weights."""
        ran = [self.of[layer.site.key] for layer in same if layer.site.key in self.of]
        if not sum(one.count for one in ran):
            raise MultiheadError(
                f"{same[0].name} did not run on the calibration text", hint="use text that reaches every layer"
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
    model: nn.Module,
    layers: WeightSets,
    batches: Iterable[Inputs],
    *,
    beside: Sequence[Accumulator] = (),
    progress: Callable[[str, int, int], None] | None = None,
) -> dict[str, Square]:
    """The covariance of the heads' outputs, by the name of the weight set.

    `beside`: what else learns from the pass.
    """
    mine, all_reduce = shard(batches)
    sums = HeadCovariance(layers, model)

    def tell(batches: float) -> None:
        if progress is not None:
            progress("heads", int(batches), len(mine))

    run(model, Corpus(model, mine, part_batches=len(mine)), [sums, *beside], progress=tell)
    moments = sums.moments()
    for one in moments.values():
        one.all_reduce(all_reduce)
    return {name: one.covariance() for name, one in moments.items()}
