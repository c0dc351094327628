"""Run a model or a layer on real input and keep a sample of it for the statements, attention by attention.

>>> import torch, multihead as mh
>>> model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(12, 3, batch_first=True), 2).eval()
>>> list(layer_samples(model, {"src": torch.randn(2, 7, 12)}))
[L0: 3 heads of 4, 14 tokens in 2 sequences, L1: 3 heads of 4, 14 tokens in 2 sequences]
"""

from __future__ import annotations

import inspect
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Batch, Inputs, PerSite, State
from multihead.corpus.batches import Document, batches
from multihead.corpus.documents import Corpus
from multihead.corpus.run import run
from multihead.errors import MultiheadError, SizeError
from multihead.layer import Problem, weights_of
from multihead.layer._problem import ScoreConfig
from multihead.layer.attention import MultiHeadAttention
from multihead.layer.outputs import Cells
from multihead.model.anatomy import anatomy
from multihead.model.call import Call
from multihead.model.call_tokens import learned_positions
from multihead.model.compiled import inner
from multihead.model.head_weights import HeadWeights
from multihead.model.projection_inputs import ProjectionInputs, Projections, projections_of
from multihead.model.sites import Site
from multihead.statements.layer_sample import LayerSample, Passage, rotations
from multihead.statements.without import ablation, count_tokens, placed

Data = Tensor | Mapping[str, Any] | Iterable[Document]

TOKENS = 4096
"""The default size of the sample: covariances of a few hundred dimensions need thousands of tokens."""
PIECE = 256
"""Longer documents are cut into pieces of so many tokens."""
CELLS = 1 << 21
"""Cells of attention maps that are kept per layer."""
ROOM = 1 << 30
"""Bytes kept at once; a model with more layers than fit runs again for the rest."""


def layer_samples(
    model: nn.Module,
    data: Data,
    *,
    tokenizer: Any = None,
    layers: Sequence[str] | None = None,
    tokens: int = TOKENS,
    seed: int = 0,
) -> Iterator[LayerSample]:
    """A bounded sample of `data` at every attention of a model, or at those named in `layers`.

    Args:
        data: of a layer, a tensor (batch, token, d_model) or the mapping that layer(**data) takes; of a model,
            texts (with a `tokenizer`), lists of token ids, or mappings that model(**batch) takes.
        tokens: about how many tokens are kept.
    """
    sampled = _bounded(model, data, tokenizer, tokens)
    chosen = _chosen(_layers(model, sampled[0]), layers)
    width = sum(_width(layer) for layer in chosen)
    at_once = max(1, int(len(chosen) * ROOM / (width * tokens * 8)))
    config = getattr(inner(model), "config", None)
    for start in range(0, len(chosen), at_once):
        sampler = LayerSampler(chosen[start : start + at_once], tokens)
        run(model, Corpus(model, sampled), [sampler])
        for layer in sampler.layers.values():
            kept = sampler.pop(layer)
            yield LayerSample(
                layer.name,
                layer.weights,
                kept.passages,
                kept.scores,
                kept.causal,
                seed,
                layer.module,
                rotations(config, layer.weights.q.shape[1]),
                partial(ablation, model, sampled, layer.head_names, sampler.sites),
            )


# ---- data -------------------------------------------------------------------------------------


def _bounded(model: nn.Module, data: Data, tokenizer: Any, tokens: int) -> list[Inputs]:
    """Batches that the model takes, until there are enough tokens."""
    if isinstance(data, Tensor) and data.is_floating_point():
        return [placed(model, _of_tensor(model, data, tokens))]
    piece = min(PIECE, learned_positions(model) or PIECE)
    kept: list[Inputs] = []
    count = 0
    for batch in batches(model, data, tokenizer=tokenizer, max_tokens=piece):
        kept.append(placed(model, batch))
        count += count_tokens(batch)
        if count >= tokens:
            break
    return kept


def _of_tensor(model: nn.Module, x: Tensor, tokens: int) -> Inputs:
    x = x[None] if x.ndim == 2 else x
    if x.ndim != 3 or 0 in x.shape:
        raise SizeError(f"data has shape {tuple(x.shape)}", hint="the input of a layer is (batch, token, d_model)")
    x = x[: max(1, -(-tokens // x.shape[1]))]
    if isinstance(model, nn.MultiheadAttention):
        x = x if model.batch_first else x.transpose(0, 1)
        return {"query": x, "key": x, "value": x}
    if isinstance(model, MultiHeadAttention):
        return {"query": x}
    return {next(iter(inspect.signature(model.forward).parameters)): x}


# ---- layers -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class SampledLayer:
    """One attention: its place in the model, and its weights."""

    site: Site
    module: nn.Module
    weights: HeadWeights
    """in fp64"""
    projections: Projections

    @property
    def name(self) -> str:
        return self.site.label

    @property
    def head_names(self) -> list[str]:
        return [self.site.name(head) for head in range(self.site.heads)]


def _layers(model: nn.Module, batch: Inputs) -> list[SampledLayer]:
    root = inner(model)
    if isinstance(root, MultiHeadAttention):
        if root.num_heads == 0:
            raise SizeError("the layer has 0 heads: there is nothing to test", hint="every head of it was cut")
        projections = root.q_proj, root.k_proj, root.v_proj
        site = Site("", 0, "", 0, root.num_heads)
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


def _chosen(known: Sequence[SampledLayer], names: Sequence[str] | None) -> list[SampledLayer]:
    if names is None:
        return list(known)
    wanted = [f"L{n}" if n.isdigit() else n for n in names]
    wrong = next((n for n in wanted if n not in [layer.name for layer in known]), None)
    if wrong is not None:
        labels = ", ".join(layer.name for layer in known)
        raise SizeError(
            f"there is no layer {wrong!r}: found {labels}", hint="layers are named as in L3, decoder.L3"
        )
    return [layer for layer in known if layer.name in wanted]


def _width(layer: SampledLayer) -> int:
    """Values that are kept per token."""
    w = layer.weights
    return w.q.shape[2] + w.k.shape[2] + (w.heads + w.kv_heads) * (w.q.shape[1] + w.v.shape[1])


# ---- the sample -------------------------------------------------------------------------------


@dataclass
class Passages:
    """The first sequences of one attention, in order, until they have `limit` tokens."""

    limit: int
    passages: list[Passage] = field(default_factory=list[Passage])
    scores: ScoreConfig = field(default_factory=lambda: ScoreConfig(1.0))
    causal: bool = True

    @property
    def tokens(self) -> int:
        return sum(passage.x.shape[0] for passage in self.passages)

    @property
    def full(self) -> bool:
        return self.tokens >= self.limit

    @property
    def cells(self) -> int:
        return sum(passage.map.numel() for passage in self.passages if passage.map is not None)

    def merge(self, other: Passages) -> None:
        self.scores = self.scores if self.passages else other.scores
        self.causal &= other.causal
        for passage in other.passages:
            if not self.full:
                self.passages.append(passage if self.cells < CELLS else replace(passage, map=None))

    def state(self) -> dict[str, Any]:
        return {
            "passages": [_state(passage) for passage in self.passages],
            "scores": {f.name: getattr(self.scores, f.name) for f in fields(self.scores)},
            "causal": self.causal,
        }


def _state(passage: Passage) -> dict[str, Tensor | None]:
    """Self-attention reads keys and values from x: it is saved once."""
    return vars(passage) | {"memory": None if passage.memory is passage.x else passage.memory}


class LayerSampler(PerSite[Passages]):
    """Keeps inputs, q, k, v, outputs and maps of some attentions, of the first `tokens` tokens of a corpus."""

    name = "sample"
    forwards = 2.0

    def __init__(self, layers: Sequence[SampledLayer], tokens: int = TOKENS) -> None:
        super().__init__()
        self.layers = {layer.site.key: layer for layer in layers}
        self.tokens = tokens
        self._inputs = ProjectionInputs({layer.site.path: layer.projections for layer in layers})

    def make(self, site: Site) -> Passages:
        return Passages(self.tokens)

    def restore(self, site: Site, state: State) -> Passages:
        kept = self.make(site)
        kept.scores, kept.causal = ScoreConfig(**state["scores"]), bool(state["causal"])
        for saved in state["passages"]:
            kept.passages.append(
                Passage(**{**saved, "memory": saved["x"] if saved["memory"] is None else saved["memory"]})
            )
        return kept

    def pop(self, layer: SampledLayer) -> Passages:
        """What was kept of a layer. It is not kept any longer: the next layer needs the room."""
        kept = self.of.pop(layer.site.key, None)
        if kept is None or not kept.passages:
            raise MultiheadError(
                f"{layer.name} did not run on this data", hint="pass batches that reach every layer"
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
        self.sites.register(call.site)
        if call.key not in self.layers:
            return
        layer, kept, problem = self.layers[call.key], self.of_call(call), call.problem
        weights = layer.weights
        inputs = self._inputs.take(call, weights)
        x, memory = inputs.q.double(), inputs.k.double()
        tensors = (x, memory, weights.q, weights.k, weights.v, weights.o)
        if not all(bool(tensor.isfinite().all()) for tensor in tensors):
            raise MultiheadError(
                f"the input or the weights of {layer.name} have NaN or inf",
                hint="the statements are about finite values",
            )
        kept.scores = replace(problem.scores, dropout=0.0)
        kv = _kv_order(problem, weights)
        maps = _maps(problem, kept)
        for row, queries, keys in _rows(call):
            if kept.full:
                return
            of_queries = x[row, queries]
            passage = Passage(
                of_queries,
                memory[row, keys] if call.cross else of_queries,
                problem.q[row][:, queries].double(),
                problem.k[row][kv][:, keys].double(),
                problem.v[row][kv][:, keys].double(),
                out[row][:, queries].detach().double(),
                None if maps is None or row >= len(maps) else maps[row][:, queries][:, :, keys],
            )
            if kept.causal:
                kept.causal = not call.cross and not _looks_ahead(problem, passage.map, row, queries)
            kept.passages.append(passage)


def _kv_order(problem: Problem, weights: HeadWeights) -> list[int]:
    """The kernel's kv head for each kv head of the weights: models copy kv heads on the way."""
    order = [0] * weights.kv_heads
    for of_weights, of_kernel in zip(weights.groups.kv_of_head, problem.groups.kv_of_head, strict=True):
        order[of_weights] = of_kernel
    return order


def _rows(call: Call) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(row, queries, keys) of each sequence, without padding."""
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


def _maps(problem: Problem, kept: Passages) -> Float[Tensor, "row head query key"] | None:
    """The maps of the first rows of the batch, as many as there is room for; None if there is no room."""
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
    """Whether some query of a sequence sees a later key; without a map, whether one of its first queries does."""
    if weights is not None:
        return bool(weights.triu(1 + weights.shape[2] - weights.shape[1]).any())
    if len(queries) < 2:
        return False
    first = queries[:-1][:4].tolist()
    seen = weights_of(problem, Cells(rows=first))[row]
    return any(bool(seen[:, i, query + 1 :].any()) for i, query in enumerate(first))
