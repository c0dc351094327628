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
from itertools import chain
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
from multihead.corpus.python_manual import python_manual
from multihead.corpus.read_texts import read_documents
from multihead.corpus.run import BatchRunner
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.layer import Problem, weights_of
from multihead.layer._problem import ScoreConfig
from multihead.layer.attention import MultiHeadAttention
from multihead.layer.interop import rotary_candidates
from multihead.layer.outputs import Cells
from multihead.model.anatomy import anatomy
from multihead.model.call import Call
from multihead.model.compiled import inner
from multihead.model.head_weights import HeadWeights
from multihead.model.projection_inputs import ProjectionInputs, Projections, projections_of
from multihead.model.sites import Key, Site, Sites, original_numbers
from multihead.model.token_count import TokenCount
from multihead.model.token_limit import learned_positions
from multihead.statements.layer_sample import LayerSample, SequenceSample
from multihead.statements.output_change import output_change

Data = Tensor | Mapping[str, Any] | Iterable[Document]

TOKENS = 4096
"""The default size of the sample: covariances of a few hundred dimensions need thousands of tokens."""
PIECE = 256
"""Longer documents are cut into pieces of so many tokens."""
CELLS = 1 << 21
"""Cells of attention maps that the sample of a layer has."""
ROOM = 1 << 30
"""Bytes of the samples held at once; a model with more layers than fit runs again for the others."""


def layer_samples(
    model: nn.Module,
    data: Data | None,
    *,
    tokenizer: Any = None,
    layers: Sequence[str | int] | None = None,
    tokens: int = TOKENS,
    seed: int = 0,
) -> Iterator[LayerSample]:
    """A sample of about `tokens` tokens at every attention of a model, or at those named in `layers`.

    Without data, a model with a tokenizer reads the sample text, then the manual inside Python.
    """
    check_model(model)
    check_tokenizer(tokenizer)
    if data is None and tokenizer is not None:
        data = chain(read_documents(tokenizer, model=model), python_manual())
    check_data(data)
    assert data is not None
    check_count("tokens", tokens)
    check_seed(seed)
    labels = _labels(layers)
    batches = _batches(model, data, tokenizer, tokens)
    sampled = _layers(model, batches[0], labels)
    at_once = max(1, int(len(sampled) * ROOM / (sum(layer.width for layer in sampled) * tokens * 8)))
    config = getattr(inner(model), "config", None)
    for start in range(0, len(sampled), at_once):
        sampler = LayerSampler(sampled[start : start + at_once], tokens)
        runner = BatchRunner(model, [sampler])
        for index, inputs in enumerate(batches):
            runner.run(Batch(inputs, index))
        for layer in sampler.layers.values():
            sample = sampler.pop(layer)
            yield LayerSample(
                layer.site.label,
                layer.weights,
                sample.sequences,
                sample.scores,
                sample.causal,
                seed,
                layer.module,
                rotary_candidates(config, layer.weights.q.shape[1]),
                partial(output_change, model, batches, layer.site.names, sampler.sites),
            )


# ---- data -------------------------------------------------------------------------------------


def _batches(model: nn.Module, data: Data, tokenizer: Any, tokens: int) -> list[Inputs]:
    """Batches to sample from, until there are enough tokens."""
    if isinstance(data, Tensor) and data.is_floating_point():
        return [_like_model(model, _layer_inputs(model, data, tokens))]
    piece = min(PIECE, learned_positions(model) or PIECE)
    enough: list[Inputs] = []
    tokens_in, count = TokenCount(model, whole=True), 0
    for batch in batches(model, data, tokenizer=tokenizer, max_tokens=piece):
        enough.append(_like_model(model, batch))
        count += tokens_in(enough[-1])
        if count >= tokens:
            break
    return enough


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
    return {
        name: x.to(like if x.is_floating_point() else like.device) if isinstance(x, Tensor) else x
        for name, x in batch.items()
    }


# ---- layers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SampledLayer:
    """One attention of the model, with its weights in fp64."""

    site: Site
    module: nn.Module
    weights: HeadWeights
    projections: Projections

    @property
    def width(self) -> int:
        """How many values a sample has per token."""
        w = self.weights
        return w.q.shape[2] + w.k.shape[2] + (w.heads + w.kv_heads) * (w.q.shape[1] + w.v.shape[1])


def _layers(model: nn.Module, batch: Inputs, labels: Sequence[str] | None = None) -> list[SampledLayer]:
    """The layers that can be sampled, or those with these labels; raises for unknown labels."""
    root = inner(model)
    if isinstance(root, MultiHeadAttention):
        if root.num_heads == 0:
            raise SizeError("the layer must have a head, got 0 heads", hint="every head of it was pruned")
        projections = root.q_proj, root.k_proj, root.v_proj
        site = Site("", 0, "", 0, root.num_heads, numbers=original_numbers(root, root.num_heads))
        sampled = [SampledLayer(site, root, HeadWeights.of_module(root).double(), projections)]
    else:
        if not isinstance(root, nn.MultiheadAttention):  # the first axis of its inputs may be tokens
            batch = {n: x[:2] if isinstance(x, Tensor) and x.ndim > 1 else x for n, x in batch.items()}
        layers = anatomy(model, batch)
        for layer in layers:
            layer.require("the theory", direct=True, ungated=True)
        sampled = [
            SampledLayer(layer.site, layer.module, HeadWeights.of(layer).double(), projections_of(layer, root))
            for layer in layers
        ]
    sites = Sites(layer.site for layer in sampled)
    keys = {sites.layer(label).key for label in labels or ()}
    return [layer for layer in sampled if labels is None or layer.site.key in keys]


def _labels(layers: object) -> list[str] | None:
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
    """Samples inputs, q, k, v, outputs and maps of some attentions on the first `tokens` tokens of a corpus."""

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
        """Remove and return the sample of a layer: the next layer needs the memory."""
        sample = self.of.pop(layer.site.key, None)
        if sample is None or not sample.sequences:
            raise MultiheadError(
                f"{layer.site.label} did not run on this data", hint="pass batches that reach every layer"
            )
        return sample

    def inputs(self, batch: Batch) -> Inputs | None:
        full = len(self.of) == len(self.layers) and all(sample.full for sample in self.of.values())
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
        sample = self.of.setdefault(call.key, SequenceSamples(self.tokens))
        weights = layer.weights
        inputs = self._inputs.take(call, weights)
        x, memory = inputs.q.double(), inputs.k.double()
        tensors = (x, memory, weights.q, weights.k, weights.v, weights.o)
        if not all(bool(tensor.isfinite().all()) for tensor in tensors):
            raise MultiheadError(
                f"the input or the weights of {layer.site.label} have NaN or inf",
                hint="the statements are about finite values",
            )
        sample.scores = replace(problem.scores, dropout=0.0)
        # The kernel's kv head for each kv head of the weights: models copy kv heads before the kernel.
        in_kernel = dict(zip(weights.groups.kv_of_head, problem.groups.kv_of_head, strict=True))
        kv = [in_kernel.get(head, 0) for head in range(weights.kv_heads)]
        maps = _maps(problem, sample)
        for row, queries, keys in _rows(call):
            if sample.full:
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
            if sample.causal:
                sample.causal = not call.cross and not _looks_ahead(problem, sequence.map, row, queries)
            sample.sequences.append(sequence)


def _rows(call: Call) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(row, queries, keys) of each sampled sequence, without padding."""
    size, valid_keys = call.problem.coordinates, call.keys.valid
    if valid_keys is None:
        valid_keys = torch.ones(size.batch, size.keys, dtype=torch.bool, device=size.device)
    for row, valid in enumerate(zip(call.real_rows, valid_keys, strict=True)):
        queries, keys = (of_row.nonzero().squeeze(-1) for of_row in valid)
        if len(queries) and len(keys):
            yield row, queries, keys


def _maps(problem: Problem, sample: SequenceSamples) -> Float[Tensor, "row head query key"] | None:
    """The attention maps of the first sampled rows, as many as fit into `CELLS`; None if none does."""
    size = problem.coordinates
    rows = min(size.batch, 8 * CELLS // max(size.heads * size.queries * size.keys, 1))
    if sample.cells >= CELLS or not rows:
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
