"""Run a model or a layer on real input and keep, of each attention, what the statements are about.

>>> import torch, multihead as mh
>>> model = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(12, 3, batch_first=True), 2).eval()
>>> list(subjects(model, {"src": torch.randn(2, 7, 12)}))
[L0: 3 heads of 4, 14 tokens in 2 sequences, L1: 3 heads of 4, 14 tokens in 2 sequences]
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from multihead._base.shapes import HeadOutputs
from multihead.corpus.batches import Document, batches
from multihead.errors import MultiheadError, SizeError
from multihead.layer.ask import Cells, weights_of
from multihead.layer.attention import MultiHeadAttention
from multihead.layer.problem import Problem, Scores
from multihead.model.anatomy import LayerAnatomy, anatomy
from multihead.model.call import Call, Compute
from multihead.model.call_tokens import learned_positions
from multihead.model.forward import Forward
from multihead.model.intercept import inner
from multihead.model.sites import Key
from multihead.statements.subject import HeadWeights, Passage, Subject, rotations
from multihead.statements.without import Batch, ablation, count_tokens, placed

Data = Tensor | Mapping[str, Any] | Iterable[Document]

TOKENS = 4096
"""Tokens that are looked at, unless told otherwise: covariances of a few hundred numbers need thousands."""
PIECE = 256
"""Longer documents are cut into pieces of so many tokens."""
CELLS = 1 << 21
"""Cells of attention maps that are kept of one layer."""
ROOM = 1 << 30
"""Bytes kept at once; a model with more layers than fit runs again for the rest."""


def subjects(
    model: nn.Module,
    data: Data,
    *,
    tokenizer: Any = None,
    layers: Sequence[str] | None = None,
    tokens: int = TOKENS,
    seed: int = 0,
) -> Iterator[Subject]:
    """Every attention of a model (or those named in `layers`) on a bounded sample of `data`.

    Args:
        data: of a layer, a tensor (batch, token, d_model) or the mapping that layer(**data) takes; of a model,
            texts (with a `tokenizer`), lists of token ids, or mappings that model(**batch) takes.
        tokens: no more than about so many are looked at.
    """
    given = _bounded(model, data, tokenizer, tokens)
    known = _layers(model, given[0])
    chosen = _chosen(known, layers)
    own = sum(_width(layer) for layer in chosen)
    at_once = max(1, int(len(chosen) * ROOM / (own * tokens * 8)))
    for start in range(0, len(chosen), at_once):
        yield from _gathered(model, given, chosen[start : start + at_once], tokens, seed)


# ---- data -------------------------------------------------------------------------------------


def _bounded(model: nn.Module, data: Data, tokenizer: Any, tokens: int) -> list[Batch]:
    """Batches that the model takes, until there are enough tokens."""
    if isinstance(data, Tensor) and data.is_floating_point():
        return [_of_tensor(model, data, tokens)]
    piece = min(PIECE, learned_positions(model) or PIECE)
    kept: list[Batch] = []
    count = 0
    for batch in batches(model, data, tokenizer=tokenizer, max_tokens=piece):
        kept.append(batch)
        count += count_tokens(batch)
        if count >= tokens:
            break
    return kept


def _of_tensor(model: nn.Module, x: Tensor, tokens: int) -> Batch:
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


# ---- weights ----------------------------------------------------------------------------------


@dataclass
class _Layer:
    """One attention: its place, its weights, where in memory they lie, and what was kept of its runs."""

    key: Key
    name: str
    head_names: list[str]
    module: nn.Module
    weights: HeadWeights
    first: Mapping[str, int]
    """by letter, the address of the first number of the projection"""
    sequences: list[Passage] = field(default_factory=list[Passage])
    cells: int = 0
    scores: Scores | None = None
    causal: bool = True


def _layers(model: nn.Module, batch: Batch) -> list[_Layer]:
    root = inner(model)
    if isinstance(root, MultiHeadAttention):
        if root.num_heads == 0:
            raise SizeError("the layer has 0 heads: there is nothing to test", hint="every head of it was cut")
        names = [f"L0H{i}" for i in range(root.num_heads)]
        where = {letter: getattr(root, f"{letter}_proj").weight.data_ptr() for letter in "qkv"}
        return [_Layer(("", 0), "L0", names, root, _own_weights(root), where)]
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    few = {n: x[:2].to(device) if isinstance(x, Tensor) and x.ndim > 1 else x for n, x in batch.items()}
    small = few if not isinstance(root, nn.MultiheadAttention) else batch
    layers = anatomy(model, small)
    for layer in layers:
        layer.require("the theory", direct=True, ungated=True)
    return [_of_anatomy(layer) for layer in layers]


def _own_weights(layer: MultiHeadAttention) -> HeadWeights:
    def rows(linear: nn.Linear, dim: int) -> tuple[Tensor, Tensor]:
        w = linear.weight.detach().double()
        b = cast(Tensor | None, linear.bias)
        flat = w.new_zeros(w.shape[0]) if b is None else b.detach().double()
        return w.reshape(-1, dim, w.shape[1]), flat.view(-1, dim)

    (W_Q, b_Q), (W_K, b_K) = rows(layer.q_proj, layer.head_dim), rows(layer.k_proj, layer.head_dim)
    W_V, b_V = rows(layer.v_proj, layer.value_dim)
    out = layer.o_proj.weight.detach().double()
    b_O = cast(Tensor | None, layer.o_proj.bias)
    return HeadWeights(
        W_Q,
        W_K,
        W_V,
        out.reshape(out.shape[0], layer.num_heads, layer.value_dim).transpose(0, 1).contiguous(),
        b_Q,
        b_K,
        b_V,
        out.new_zeros(out.shape[0]) if b_O is None else b_O.detach().double(),
        layer.kv_of_head,
    )


def _of_anatomy(layer: LayerAnatomy) -> _Layer:
    def stacked(parts: Sequence[Tensor]) -> Tensor:
        return torch.stack([p.detach().double() for p in parts])

    def bias(parts: Sequence[Tensor] | None, like: Tensor) -> Tensor:
        return like.new_zeros(like.shape[:2]) if parts is None else stacked(parts)

    W_Q, W_K, W_V, W_O = (stacked(w) for w in (layer.W_Q, layer.W_K, layer.W_V, layer.W_O))
    b_O = W_O.new_zeros(W_O.shape[1]) if layer.b_O is None else layer.b_O.detach().double()
    weights = HeadWeights(
        W_Q, W_K, W_V, W_O, bias(layer.b_Q, W_Q), bias(layer.b_K, W_K), bias(layer.b_V, W_V), b_O,
        layer.groups.kv_of_head,
    )  # fmt: skip
    where = {"q": layer.W_Q[0].data_ptr(), "k": layer.W_K[0].data_ptr(), "v": layer.W_V[0].data_ptr()}
    names = [layer.site.name(i) for i in range(layer.num_heads)]
    return _Layer(layer.site.key, layer.name, names, layer.module, weights, where)


def _chosen(known: list[_Layer], names: Sequence[str] | None) -> list[_Layer]:
    if names is None:
        return known
    wanted = [f"L{n}" if n.isdigit() else n for n in names]
    wrong = next((n for n in wanted if n not in [layer.name for layer in known]), None)
    if wrong is not None:
        found = ", ".join(layer.name for layer in known)
        raise SizeError(f"there is no layer {wrong!r}: found {found}", hint="layers are named as in L3, decoder.L3")
    return [layer for layer in known if layer.name in wanted]


def _width(layer: _Layer) -> int:
    """Numbers that are kept of one token."""
    w = layer.weights
    heads, kv_heads = w.W_Q.shape[0], w.W_K.shape[0]
    key_dim, value_dim = w.W_Q.shape[1], w.W_V.shape[1]
    return w.W_Q.shape[2] + w.W_K.shape[2] + (heads + kv_heads) * (key_dim + value_dim)


# ---- the run ----------------------------------------------------------------------------------


class _Reads(TorchDispatchMode):
    """What each projection was multiplied with: x in x Wᵀ, told by where W lies in memory."""

    def __init__(self, addresses: Iterable[int]) -> None:
        super().__init__()
        self.addresses = tuple(addresses)
        self.seen: dict[int, list[Tensor]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            x, w = cast(tuple[Tensor, Tensor], args[-2:])
            start = w.data_ptr()
            stop = start + w.numel() * w.element_size()
            for address in self.addresses:
                if start <= address < stop:
                    self.seen.setdefault(address, []).append(x)
        return func(*args, **(kwargs or {}))

    def take(self, address: int, rows: int) -> Tensor | None:
        """The first input of so many tokens since the last call: relative positions pass the same weights later."""
        return next((x for x in self.seen.pop(address, []) if x.shape[0] == rows), None)


def _gathered(
    model: nn.Module, given: Sequence[Batch], layers: Sequence[_Layer], tokens: int, seed: int
) -> Iterator[Subject]:
    by_key = {layer.key: layer for layer in layers}
    reads = _Reads({address for layer in layers for address in layer.first.values()})

    def listen(call: Call, run: Compute) -> HeadOutputs:
        out = run()
        layer = by_key.get(call.key)
        if layer is not None:
            _take(layer, call, out, reads, tokens)
        return out

    forward = Forward(model)
    with reads:
        for batch in given:
            forward(placed(model, batch), listen)
    config = getattr(inner(model), "config", None)
    for layer in layers:
        if layer.scores is None or not layer.sequences:
            raise MultiheadError(
                f"{layer.name} did not run on this data", hint="pass batches that reach every layer"
            )
        yield Subject(
            layer.name,
            layer.weights,
            layer.sequences,
            layer.scores,
            layer.causal,
            seed,
            layer.module,
            rotations(config, layer.weights.W_Q.shape[1]),
            lambda names=layer.head_names: ablation(model, given, names),
        )
        layer.sequences = []  # the next layer needs the room


def _take(layer: _Layer, call: Call, out: HeadOutputs, reads: _Reads, tokens: int) -> None:
    problem = call.problem
    batch, queries, keys = problem.q.shape[0], problem.q.shape[2], problem.k.shape[2]
    counts = {"q": batch * queries, "k": batch * keys, "v": batch * keys}
    inputs: dict[int, Tensor | None] = {}  # letters that lie in one matrix share their input
    for letter, count in counts.items():
        address = layer.first[letter]
        inputs[address] = inputs.get(address) if address in inputs else reads.take(address, count)
    x, memory, v = (inputs[layer.first[letter]] for letter in "qkv")
    if x is None or memory is None or v is None or (keys != queries and not call.cross):
        raise MultiheadError(
            f"what goes into the projections of {layer.name} was not seen",
            hint="run whole documents, without a cache; quantised or adapted projections must be merged first",
        )
    if not bool(x.isfinite().all()) or not bool(memory.isfinite().all()) or not _finite(layer.weights):
        raise MultiheadError(
            f"the input or the weights of {layer.name} hold NaN or inf", hint="no statement is about such numbers"
        )
    layer.scores = replace(problem.scores, dropout=0.0)
    x, memory, v = x.double(), memory.double(), v.double()
    w, kv = layer.weights, problem.groups.kv_of_head[0] if problem.groups.kv_of_head else 0
    values = v @ w.W_V[w.kv_of_head[0]].T + w.b_V[w.kv_of_head[0]] if w.kv_of_head else v
    swap = _is_token_first(values, problem.v[:, kv].double())
    x, memory = _shaped(x, batch, queries, swap), _shaped(memory, batch, keys, swap)
    own = _kv_order(problem, w.kv_of_head, w.W_K.shape[0])
    maps = _maps(problem, layer)
    taken = sum(s.x.shape[0] for s in layer.sequences)
    for row, asks, answers in _rows(call, batch):
        if taken >= tokens:
            return
        mine = x[row, asks]
        kept = Passage(
            mine,
            memory[row, answers] if call.cross else mine,
            problem.q[row][:, asks].double(),
            problem.k[row][own][:, answers].double(),
            problem.v[row][own][:, answers].double(),
            out[row][:, asks].detach().double(),
            None if maps is None or row >= len(maps) else maps[row][:, asks][:, :, answers],
        )
        if layer.causal:
            layer.causal = not call.cross and not _looks_ahead(problem, kept.map, row, asks)
        if kept.map is not None:
            layer.cells += kept.map.numel()
        layer.sequences.append(kept)
        taken += mine.shape[0]


def _finite(w: HeadWeights) -> bool:
    return all(bool(x.isfinite().all()) for x in (w.W_Q, w.W_K, w.W_V, w.W_O))


def _is_token_first(made: Float[Tensor, "row dim"], seen: Float[Tensor, "batch key dim"]) -> bool:
    """Whether the rows of a product run over (token, batch), as in torch.nn, and not over (batch, token)."""
    batch, keys = seen.shape[:2]
    there = float((made.view(batch, keys, -1) - seen).abs().sum())
    swapped = float((made.view(keys, batch, -1).transpose(0, 1) - seen).abs().sum())
    return swapped < there


def _shaped(x: Tensor, batch: int, tokens: int, swap: bool) -> Float[Tensor, "batch token width"]:
    return x.view(tokens, batch, -1).transpose(0, 1) if swap else x.view(batch, tokens, -1)


def _kv_order(problem: Problem, kv_of_head: Sequence[int], kv_heads: int) -> list[int]:
    """The kernel's kv head for each one of the weights: models copy kv heads on the way."""
    order = [0] * kv_heads
    for mine, theirs in zip(kv_of_head, problem.groups.kv_of_head, strict=True):
        order[mine] = theirs
    return order


def _rows(call: Call, batch: int) -> Iterator[tuple[int, Tensor, Tensor]]:
    """(row, queries, keys) of each sequence, padding left out."""
    problem = call.problem
    device = problem.q.device
    if problem.packing is not None:
        for a, b in zip(problem.packing[:-1], problem.packing[1:], strict=True):
            places = torch.arange(a, b, device=device)
            yield 0, places, places
        return
    whole = [torch.arange(problem.q.shape[2], device=device), torch.arange(problem.k.shape[2], device=device)]
    for row in range(batch):
        asks, answers = (
            every if tokens.valid is None else tokens.valid[row].nonzero().squeeze(-1)
            for every, tokens in zip(whole, (call.queries, call.keys), strict=True)
        )
        if len(asks) and len(answers):
            yield row, asks, answers


def _maps(problem: Problem, layer: _Layer) -> Float[Tensor, "row head query key"] | None:
    """The maps of the first rows of the batch, as many as there is room for; None where there is none."""
    frame = problem.frame
    rows = min(frame.batch, 8 * CELLS // max(frame.heads * frame.queries * frame.keys, 1))
    if layer.cells >= CELLS or not rows or problem.packing is not None:
        return None
    wide = replace(problem, q=problem.q.double(), k=problem.k.double(), v=problem.v.double())
    step = max(1, 8 * CELLS // (frame.batch * frame.heads * frame.keys))
    places = [range(at, min(at + step, frame.queries)) for at in range(0, frame.queries, step)]
    return torch.cat([weights_of(wide, Cells(rows=some))[:rows] for some in places], 2)


def _looks_ahead(problem: Problem, kept: Float[Tensor, "head query key"] | None, row: int, asks: Tensor) -> bool:
    """Whether some query of a sequence sees a later key; its first ones are asked where no map was kept."""
    if kept is not None:
        return bool(kept.triu(1 + kept.shape[2] - kept.shape[1]).any())
    if len(asks) < 2:
        return False
    if problem.packing is not None:
        allowed = problem.mask.allowed(problem.frame.grid(rows=slice(0, 1)))
        return allowed is None or bool(allowed[..., 0, 1:].any())
    some = asks[:-1][:4].tolist()
    seen = weights_of(problem, Cells(rows=some))[row]
    return any(bool(seen[:, i, at + 1 :].any()) for i, at in enumerate(some))
