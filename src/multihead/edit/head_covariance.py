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

from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial

from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.progress import Progress
from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Accumulator, Batch, Inputs
from multihead.corpus.data_parallel import shard
from multihead.corpus.run import BatchRunner
from multihead.edit.weight_sets import WeightSets
from multihead.errors import MultiheadError
from multihead.model.active_interceptions import interception_of
from multihead.model.call import Call
from multihead.model.compiled import inner
from multihead.model.layer_anatomy import LayerAnatomy
from multihead.model.statistics.second_moments import CrossMoments, Square


class HeadCovariance(Accumulator):
    """The moments of the outputs of all heads of some layers side by side, over real tokens, as W_O reads them.

    Outputs that pass a gate are read at W_O; all others at the kernel.
    """

    name = "head_covariance"

    def __init__(self, layers: WeightSets, model: nn.Module) -> None:
        super().__init__()
        self.model = inner(model)
        self.moments = {same[0].name: CrossMoments() for same in layers}
        """by the name of the weight set"""
        self._set_of = {layer.site.key: same[0].name for same in layers for layer in same}
        self._gated = {layer.path: layer for same in layers for layer in same if layer.gated}
        self._calls: dict[str, Call] = {}

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
        elif call.key in self._set_of:
            self.moments[self._set_of[call.key]].add(_outputs_of_real_rows(call, out))

    def _add_gated(self, layer: LayerAnatomy, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        """Add gated head outputs to the covariance, before W_O runs."""
        call = self._calls.get(layer.path)
        if call is not None and call.key in self._set_of and interception_of(call.module) is not None:
            columns = [index for slots in layer.weights["o"].heads for index in slots.indices()]
            outputs = args[0].reshape(*call.real_rows.shape, -1)[..., columns]
            self.moments[self._set_of[call.key]].add(outputs[call.real_rows])


def _outputs_of_real_rows(call: Call, out: HeadOutputs) -> Float[Tensor, "token column"]:
    """The outputs of the heads of one call side by side, a row for every real token."""
    return out.transpose(1, 2).flatten(2)[call.real_rows]  # token, head · value_dim


def head_covariance(
    model: nn.Module,
    layers: WeightSets,
    batches: Iterable[Inputs],
    *,
    together: Sequence[Accumulator] = (),
    progress: Progress | None = None,
) -> dict[str, Square]:
    """The covariance of the heads' outputs, by the name of the weight set.

    `together`: other accumulators of the same runs.
    """
    mine, all_reduce = shard(batches)
    sums = HeadCovariance(layers, model)
    runner = BatchRunner(model, [sums, *together])
    for done, batch in enumerate(mine, start=1):
        runner.run(Batch(batch))
        if progress is not None:
            progress("heads", done, len(mine))
    for name, one in sums.moments.items():
        if not one.count:
            raise MultiheadError(
                f"{name} did not run on the calibration text", hint="use text that reaches every layer"
            )
        one.all_reduce(all_reduce)
    return {name: one.covariance() for name, one in sums.moments.items()}
