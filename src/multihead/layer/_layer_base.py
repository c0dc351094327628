"""The base of the attention layers: inputs without a batch axis, the score configuration, and the outputs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.arguments import check_tensor
from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError, SizeError
from multihead.layer._host_integers import HostInts
from multihead.layer._kv_store import KVStore, TokenPositions
from multihead.layer._packed_batch import PackedBatch
from multihead.layer._problem import Problem, ScoreConfig, autocast_disabled
from multihead.layer._projections import join_heads, project
from multihead.layer._rotary import sequence_length
from multihead.layer.outputs import Ask, AttentionOutput, Cells, lse_of, weights_of

if TYPE_CHECKING:
    from multihead.layer._head_shard import HeadShard


class AttentionLayer(nn.Module):
    """An attention layer with heads, an output projection and a scale."""

    input_name = "query"
    """the name of the first argument of `forward`, for errors"""

    head_shard: HeadShard | None = None
    """the heads of this rank, if tensor parallelism splits the layer"""
    num_heads: int
    scale: float
    dropout: float
    o_proj: nn.Linear

    def _unbatched(self, query: Tensor, *others: Tensor | None, **options: Any) -> Any:
        """Call the layer on (tokens, width) inputs, as a batch of one."""
        check_tensor(self.input_name, query)
        if query.ndim != 2:
            raise SizeError(
                f"{self.input_name} must have shape (batch, tokens, width) or (tokens, width), "
                f"got {tuple(query.shape)}",
                hint="flatten or unflatten its batch axes into one",
            )
        batched = query.unsqueeze(0)
        batched_others = [batched if x is query else x.unsqueeze(0) if isinstance(x, Tensor) else x for x in others]
        result = self.forward(batched, *batched_others, **options)  # not self(...): its hooks have run already
        if isinstance(result, Tensor):
            return result.squeeze(0)
        if not isinstance(result, AttentionOutput):
            return result  # a planned call keeps its batch axis
        parts = (result.out, result.weights, result.lse, result.heads)
        return AttentionOutput(*(None if part is None else part.squeeze(0) for part in parts))  # pyright: ignore[reportArgumentType]

    def _scores(self, softcap: float | None = None, sinks: Tensor | None = None) -> ScoreConfig:
        """The score configuration of the layer: scale, softcap, sinks and dropout."""
        offset, shard = 0, self.head_shard
        if shard is not None:
            offset = shard.heads[0]
            sinks = None if sinks is None else shard.local(sinks)
        return ScoreConfig(self.scale, softcap, sinks, self.dropout if self.training else 0.0, offset)

    def _sequence_length(
        self,
        queries: tuple[Tensor, TokenPositions],
        keys: tuple[Tensor, TokenPositions],
        lengths: HostInts | None,
        store: KVStore,
        positions: Tensor | None,
    ) -> int | Tensor:
        """Length of the layer's sequence, for rotations that need it; `queries` and `keys` are (x, positions)."""
        if store.tokens is not None and positions is not None:
            raise MultiheadError(
                f"positions must be None for DynamicNTK inside context_parallel, got shape "
                f"{tuple(positions.shape)}: the largest position may be on another rank",
                hint="pass no positions, or use a scaling other than DynamicNTK",
            )
        return sequence_length(queries, keys, lengths, store.tokens)

    def _mix(
        self, heads: Float[Tensor, "row head token value_dim"], packed: PackedBatch | None = None
    ) -> Float[Tensor, "batch query d_out"]:
        """The layer's Concat(heads) W_O. The heads of a packed batch are one row; the output is padded again."""
        rows = join_heads(heads)
        if packed is None:
            try:
                modules: dict[str, Any] = self._modules
                return project(modules["o_proj"], rows)
            except RuntimeError as error:
                weight = getattr(self.o_proj, "weight", None)
                if not isinstance(weight, Tensor) or weight.ndim != 2 or weight.shape[1] == rows.shape[-1]:
                    raise
                raise SizeError(
                    f"o_proj has a weight of shape {tuple(weight.shape)}, the heads have {rows.shape[-1]} features",
                    hint=f"nn.Linear({rows.shape[-1]}, {weight.shape[0]})",
                ) from error
        return packed.pad(project(self.o_proj, packed.with_empty_row(rows)))


def collect_outputs(ask: Ask, problem: Problem, out: Tensor, heads: HeadOutputs) -> AttentionOutput:
    """The layer's output with everything that `ask` requests."""
    if problem.coordinates.shard is not None and (ask.weights or ask.lse):
        raise MultiheadError(
            f"ask must be 'heads' inside context_parallel, which splits {problem.coordinates.keys} keys over "
            f"ranks, got {'weights' if ask.weights else 'lse'!r}",
            hint="call the layer outside context_parallel",
        )
    packed = problem.packed
    if packed is not None:
        q, k, v, heads = (packed.pad_heads(x) for x in (problem.q, problem.k, problem.v, heads))
        problem = replace(problem, q=q, k=k, v=v, packed=None)
    cells = Cells() if ask.weights is True else ask.weights
    with autocast_disabled(problem.q.device):
        weights = weights_of(problem, cells) if cells else None
        lse = lse_of(problem) if ask.lse else None
    return AttentionOutput(out, weights, lse, heads if ask.heads else None)
