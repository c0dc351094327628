"""Run a model or a layer on real input and keep a sample of every attention for the statements.

>>> import torch, multihead as mh
>>> from multihead.statements.collect_samples import layer_samples
>>> model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(12, 3, batch_first=True), 2).eval()
>>> list(layer_samples(model, {"src": torch.randn(2, 7, 12)}))
[L0: 3 heads of 4, 14 tokens in 2 sequences, L1: 3 heads of 4, 14 tokens in 2 sequences]
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.arguments import (
    check_count,
    check_data,
    check_list,
    check_model,
    check_seed,
    check_tokenizer,
    describe,
)
from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Accumulator, Batch, Inputs
from multihead.corpus.batches import Document, batches
from multihead.corpus.run import BatchRunner
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.layer import Problem, weights_of
from multihead.layer._problem import ScoreConfig
from multihead.layer.attention import MultiHeadAttention
from multihead.layer.interop import rotary_candidates
from multihead.layer.outputs import Cells
from multihead.model.anatomy import anatomy
from multihead.model.call import Call
from multihead.model.call_tokens import learned_positions
from multihead.model.compiled import inner
from multihead.model.head_weights import HeadWeights
from multihead.model.projection_inputs import ProjectionInputs, Projections, projections_of
from multihead.model.sites import Key, Site, Sites, original_numbers
from multihead.statements.layer_sample import LayerSample, SequenceSample
from multihead.statements.output_change import count_tokens, output_change

Data = Tensor | Mapping[str, Any] | Iterable[Document]

TOKENS = 4096
"""The default size of the sample: covariances of a few hundred dimensions need thousands of tokens."""
PIECE = 256
"""Longer documents are cut into pieces of so many tokens."""
CELLS = 1 << 21
"""Cells of attention maps that are kept per layer."""
ROOM = 1 << 30
"""Bytes kept at once; a model with more layers than fit runs again for the others."""


def layer_samples(
    model: nn.Module,
    data: Data,
    *,
    tokenizer: Any = None,
    layers: Sequence[str | int] | None = None,
    tokens: int = TOKENS,
    seed: int = 0,
) -> Iterator[LayerSample]:
    """A sample of about `tokens` tokens at every attention of a model, or at those named in `layers`."""
    check_model(model)
    check_data(data)
    check_tokenizer(tokenizer)
    check_count("tokens", tokens)
    check_seed(seed)
    names = _layer_names(layers)
    sampled = _batches(model, data, tokenizer, tokens)
    chosen = _chosen(_layers(model, sampled[0]), names)
    return _samples(model, sampled, chosen, tokens, seed)


def _samples(
    model: nn.Module, sampled: list[Inputs], chosen: list[SampledLayer], tokens: int, seed: int
) -> Iterator[LayerSample]:
    """Samples of layers, a few layers at a time, as memory allows."""
    width = sum(layer.width for layer in chosen)
    at_once = max(1, int(len(chosen) * ROOM / (width * tokens * 8)))
    config = getattr(inner(model), "config", None)
    for start in range(0, len(chosen), at_once):
        sampler = LayerSampler(chosen[start : start + at_once], tokens)
        runner = BatchRunner(model, [sampler])
        for index, inputs in enumerate(sampled):
            runner.run(Batch(inputs, index))
        for layer in sampler.layers.values():
            kept = sampler.pop(layer)
            yield LayerSample(
                layer.site.label,
                layer.weights,
                kept.sequences,
                kept.scores,
                kept.causal,
                seed,
                layer.module,
                rotary_candidates(config, layer.weights.q.shape[1]),
                partial(output_change, model, sampled, layer.head_names, sampler.sites),
            )


# ---- data -------------------------------------------------------------------------------------


def _batches(model: nn.Module, data: Data, tokenizer: Any, tokens: int) -> list[Inputs]:
    """Batches to sample from, until there are enough tokens."""
    if isinstance(data, Tensor) and data.is_floating_point():
        return [_like_model(model, _layer_inputs(model, data, tokens))]
    piece = min(PIECE, learned_positions(model) or PIECE)
    kept: list[Inputs] = []
    count = 0
    for batch in batches(model, data, tokenizer=tokenizer, max_tokens=piece):
        kept.append(_like_model(model, batch))
        count += count_tokens(batch)
        if count >= tokens:
            break
    return kept


def _layer_inputs(model: nn.Module, x: Tensor, tokens: int) -> Inputs:
    """The inputs of a bare layer, from the tensor that samples are taken of."""
    x = x[None] if x.ndim == 2 else x
    if x.ndim != 3 or 0 in x.shape:
        raise SizeError(
            f"data must be (batch, token, d_model), got shape {tuple(x.shape)}", hint="torch.randn(8, 64, d_model)"
        )
    x = x[: max(1, -(-tokens // x.shape[1]))]
    if isinstance(model, nn.MultiheadAttention):
        x = x if model.batch_first else x.transpose(0, 1)
        return {"query": x, "key": x, "value": x}
    if isinstance(model, MultiHeadAttention):
        return {"query": x}
    return {next(iter(inspect.signature(model.forward).parameters)): x}


def _like_model(model: nn.Module, batch: Inputs) -> Inputs:
    """A batch to sample from on the device and in the precision of the model."""
    like = next(iter(model.parameters()), torch.empty(0))

    def moved(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        return x.to(like) if x.is_floating_point() else x.to(like.device)

    return {name: moved(x) for name, x in batch.items()}


# ---- layers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SampledLayer:
    """One attention of the model, with its weights in fp64."""

    site: Site
    module: nn.Module
    weights: HeadWeights
    projections: Projections

    @property
    def head_names(self) -> list[str]:
        return self.site.names

    @property
    def width(self) -> int:
        """Values that are kept per token."""
        w = self.weights
        return w.q.shape[2] + w.k.shape[2] + (w.heads + w.kv_heads) * (w.q.shape[1] + w.v.shape[1])


def _layers(model: nn.Module, batch: Inputs) -> list[SampledLayer]:
    """The layers that can be sampled."""
    root = inner(model)
    if isinstance(root, MultiHeadAttention):
        if root.num_heads == 0:
            raise SizeError("the layer must have a head, got 0 heads", hint="every head of it was pruned")
        projections = root.q_proj, root.k_proj, root.v_proj
        site = Site("", 0, "", 0, root.num_heads, numbers=original_numbers(root, root.num_heads))
        return [SampledLayer(site, root, HeadWeights.of_module(root).double(), projections)]
    if not isinstance(root, nn.MultiheadAttention):  # the first axis of its inputs may be tokens
        batch = {n: x[:2] if isinstance(x, Tensor) and x.ndim > 1 else x for n, x in batch.items()}
    layers = anatomy(model, batch)
    for layer in layers:
        layer.require("the theory", direct=True, ungated=True)
    return [
        SampledLayer(layer.site, layer.module, HeadWeights.of(layer).double(), projections_of(layer, root))
        for layer in layers
    ]


def _layer_names(layers: object) -> list[str] | None:
    """Labels of the layers to sample: 3 and "3" are "L3"."""
    if layers is None:
        return None
    check_list("layers", layers, "layers", hint='["L0", "L3"]')
    layers = list(cast(Iterable[object], layers))
    if not layers:
        raise SizeError("layers must not be an empty list", hint='["L0", "L3"]')
    wrong = [x for x in layers if isinstance(x, bool) or not isinstance(x, int | str)]
    if wrong:
        raise TypeMismatchError(f"a layer must be a name or an index, got {describe(wrong[0])}", hint='"L3" or 3')
    return [f"L{x}" if str(x).isdigit() else str(x) for x in layers]


def _chosen(known: Sequence[SampledLayer], names: Sequence[str] | None) -> list[SampledLayer]:
    """The layers to sample, by label; raises for unknown labels."""
    labels = [layer.site.label for layer in known]
    unknown = next((name for name in names or () if name not in labels), None)
    if unknown is not None:
        raise SizeError(
            f"unknown layer {unknown!r}: the model has {', '.join(labels)}",
            hint="layers are named as in L3, decoder.L3",
        )
    return [layer for layer in known if names is None or layer.site.label in names]


# ---- the sample -------------------------------------------------------------------------------


@dataclass
class SequenceSamples:
    """The first sequences of one attention, in order, until they have `limit` tokens."""

    limit: int
    sequences: list[SequenceSample] = field(default_factory=list[SequenceSample])
    scores: ScoreConfig = field(default_factory=lambda: ScoreConfig(1.0))
    causal: bool = True

    @property
    def tokens(self) -> int:
        return sum(s.x.shape[0] for s in self.sequences)

    @property
    def full(self) -> bool:
        return self.tokens >= self.limit

    @property
    def cells(self) -> int:
        return sum(s.map.numel() for s in self.sequences if s.map is not None)


class LayerSampler(Accumulator):
    """Keeps inputs, q, k, v, outputs and maps of some attentions, of the first `tokens` tokens of a corpus."""

    name = "sample"
    forwards = 2.0

    def __init__(self, layers: Sequence[SampledLayer], tokens: int = TOKENS) -> None:
        super().__init__()
        self.sites = Sites()
        self.of: dict[Key, SequenceSamples] = {}
        self.layers = {layer.site.key: layer for layer in layers}
        self.tokens = tokens
        self._inputs = ProjectionInputs({layer.site.path: layer.projections for layer in layers})

    def pop(self, layer: SampledLayer) -> SequenceSamples:
        """The sampled sequences of a layer, which are no longer kept here: the next layer needs the memory."""
        kept = self.of.pop(layer.site.key, None)
        if kept is None or not kept.sequences:
            raise MultiheadError(
                f"{layer.site.label} did not run on this data", hint="pass batches that reach every layer"
            )
        return kept

    def inputs(self, batch: Batch) -> Inputs | None:
        full = len(self.of) == len(self.layers) and all(kept.full for kept in self.of.values())
        return None if full else batch.inputs

    @contextmanager
    def watching(self) -> Generator[None]:
        with self._inputs:
            yield

    def add(self, call: Call, out: HeadOutputs) -> None:
        """Sample the sequences of one attention call."""
        self.sites.register(call.site)
        if call.key not in self.layers:
            return
        layer, problem = self.layers[call.key], call.problem
        kept = self.of.setdefault(call.key, SequenceSamples(self.tokens))
        weights = layer.weights
        inputs = self._inputs.take(call, weights)
        x, memory = inputs.q.double(), inputs.k.double()
        tensors = (x, memory, weights.q, weights.k, weights.v, weights.o)
        if not all(bool(tensor.isfinite().all()) for tensor in tensors):
            raise MultiheadError(
                f"the input or the weights of {layer.site.label} have NaN or inf",
                hint="the statements are about finite values",
            )
        kept.scores = replace(problem.scores, dropout=0.0)
        kv = _kv_order(problem, weights)
        maps = _maps(problem, kept)
        for row, queries, keys in _rows(call):
            if kept.full:
                return
            of_queries = x[row, queries]
            sequence = SequenceSample(
                of_queries,
                memory[row, keys] if call.cross else of_queries,
                problem.q[row][:, queries].double(),
                problem.k[row][kv][:, keys].double(),
                problem.v[row][kv][:, keys].double(),
                out[row][:, queries].detach().double(),
                None if maps is None or row >= len(maps) else maps[row][:, queries][:, :, keys],
            )
            if kept.causal:
                kept.causal = not call.cross and not _looks_ahead(problem, sequence.map, row, queries)
            kept.sequences.append(sequence)


def _kv_order(problem: Problem, weights: HeadWeights) -> list[int]:
    """The kernel's kv head for each kv head of the weights: models copy kv heads before the kernel."""
    order = [0] * weights.kv_heads
    for of_weights, of_kernel in zip(weights.groups.kv_of_head, problem.groups.kv_of_head, strict=True):
        order[of_weights] = of_kernel
    return order


def _rows(call: Call) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(row, queries, keys) of each sampled sequence, without padding."""
    problem = call.problem
    device = problem.q.device
    every = [torch.arange(problem.q.shape[2], device=device), torch.arange(problem.k.shape[2], device=device)]
    for row in range(problem.q.shape[0]):
        queries, keys = (
            positions if tokens.valid is None else tokens.valid[row].nonzero().squeeze(-1)
            for positions, tokens in zip(every, (call.queries, call.keys), strict=True)
        )
        if len(queries) and len(keys):
            yield row, queries, keys


def _maps(problem: Problem, kept: SequenceSamples) -> Float[Tensor, "row head query key"] | None:
    """The attention maps of the first sampled rows, as many as fit into `CELLS`; None if none does."""
    size = problem.coordinates
    rows = min(size.batch, 8 * CELLS // max(size.heads * size.queries * size.keys, 1))
    if kept.cells >= CELLS or not rows:
        return None
    wide = replace(problem, q=problem.q.double(), k=problem.k.double(), v=problem.v.double())
    step = max(1, 8 * CELLS // (size.batch * size.heads * size.keys))
    blocks = [range(start, min(start + step, size.queries)) for start in range(0, size.queries, step)]
    return torch.cat([weights_of(wide, Cells(rows=block))[:rows] for block in blocks], 2)


def _looks_ahead(
    problem: Problem, weights: Float[Tensor, "head query key"] | None, row: int, queries: Tensor
) -> bool:
    """Whether some query of a sample sees a later key; without a map, whether one of its first queries does."""
    if weights is not None:
        return bool(weights.triu(1 + weights.shape[2] - weights.shape[1]).any())
    if len(queries) < 2:
        return False
    first = queries[:-1][:4].tolist()
    seen = weights_of(problem, Cells(rows=first))[row]
    return any(bool(seen[:, i, query + 1 :].any()) for i, query in enumerate(first))
