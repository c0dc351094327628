"""How similar every two heads are: an accumulator over plain forwards.

Heads compare where they say something about the same tokens. So attentions fall into groups: those of an encoder;
those of a decoder with its cross-attention, whose queries are the decoder's tokens. Attention rows compare where
their keys are the same, too. Between groups only the weights compare, and the result says why.

>>> import torch
>>> from torch import nn
>>> from multihead.corpus.documents import Corpus
>>> from multihead.corpus.run import run
>>> from multihead.measures.similarity.similarity import SimilaritySum, find_weights
>>> model = nn.TransformerEncoderLayer(12, 3, batch_first=True).eval()
>>> sums = SimilaritySum(find_weights(model))
>>> _ = run(model, Corpus(model, {"src": torch.randn(5, 7, 12)}), [sums])
>>> sums.columns().heads
('L0H0', 'L0H1', 'L0H2')
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Accumulator, Batch, BatchRun, State
from multihead.corpus.batches import BATCH_SIZE, Document
from multihead.corpus.documents import Corpus, rereadable
from multihead.corpus.run import Progress, run
from multihead.errors import MultiheadError, SizeError
from multihead.layer.problem import Problem
from multihead.measures.similarity.attention import AttentionDistances
from multihead.measures.similarity.outputs import LARGEST, OutputSimilarity
from multihead.measures.similarity.ov_circuits import OVWeights, find_weights, overlaps, spaces
from multihead.measures.similarity.result import PAIRS, Similarity
from multihead.model.call import Call
from multihead.model.sites import Key, Site, Sites
from multihead.table.table import HeadTable

CHANCE = 0.05
"""A larger CKA by chance gets a note."""


def similarity(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any],
    *,
    tokenizer: Any = None,
    by: str = "cka",
    within: float = 0.5,
    layers: Sequence[str] | None = None,
    batch_size: int = BATCH_SIZE,
    max_tokens: int | None = None,
    largest: int = LARGEST,
    seed: int = 0,
    progress: Progress | None = None,
) -> Similarity:
    """How similar every two heads are, in a layer and across layers, in one pass over `data`.

    Args:
        data: texts (with a `tokenizer`), lists of token ids, or batches.
        by: what ranks pairs and makes clusters: correlation, cka, attention, write or read.
        within: heads of a cluster are on average closer than this (1 − by, or the distance of attention).
        layers: only these, ["L0", "L3"]; by default all.
        largest: bytes of covariance to hold; beyond, CKA is a sketch and reports its error.
        progress: called with the number of finished batches.
    """
    if by not in PAIRS:
        raise SizeError(f"by must be one of {', '.join(PAIRS)}, got {by!r}", hint='by="cka"')
    weights = find_weights(model)
    options: dict[str, Any] = {"tokenizer": tokenizer, "batch_size": batch_size, "max_tokens": max_tokens}
    if weights.reason:  # no example could be made for the model: its weights are found on its own data
        data = rereadable(data)
        weights = find_weights(model, Corpus(model, data, **options).first().inputs)
    corpus = Corpus(model, data, **options)
    sums = SimilaritySum(weights, layers=layers, largest=largest, seed=seed, by=by, within=within)
    run(model, corpus, [sums], progress=progress)
    return sums.result()


@dataclass(frozen=True)
class _Seen:
    """One attention on one batch."""

    heads: HeadOutputs
    problem: Problem
    real: Bool[Tensor, "batch query"]


@dataclass
class _Group:
    """Attentions about the same tokens, and their sums."""

    sites: list[Site]
    outputs: OutputSimilarity
    attention: dict[bool, AttentionDistances]  # by whether they look at another sequence

    @property
    def names(self) -> list[str]:
        return _names(self.sites)

    def looking(self, cross: bool) -> list[Site]:
        return [site for site in self.sites if site.cross == cross]


class SimilaritySum(Accumulator):
    """Outputs, attention and weights of all heads, pair by pair.

    Memory: q, k and the outputs of all layers of one batch, linear in tokens; the covariance of all heads of a
    group, see `OutputSimilarity`; a block of attention rows, see `AttentionDistances`.
    """

    name = "similarity"
    forwards = 4.0

    def __init__(
        self,
        weights: OVWeights,
        *,
        layers: Sequence[str] | None = None,
        largest: int = LARGEST,
        seed: int = 0,
        by: str = "cka",
        within: float = 0.5,
    ) -> None:
        super().__init__()
        if not 0 <= within <= 1:
            raise SizeError(f"within must be in [0, 1], got {within}", hint="it is a distance; 0.5 is the default")
        self.weights, self.layers, self.largest, self.seed = weights, layers, largest, seed
        self.by, self.within = by, within
        self.batches = 0
        self._groups: list[_Group] = []
        self._undefined: dict[str, list[str]] = {}
        self._sites, self._seen = Sites(), dict[Key, _Seen]()  # of the batch that runs
        if weights.reason:
            for measure in ("correlation", "write", "read"):
                self._because(measure, f"the weights were not found: {weights.reason}")
            self.notes.append(f"cka is of the heads' outputs before W_O, which was not found: {weights.reason}")

    # ---- one batch ----------------------------------------------------------------------------

    def add(self, call: Call, out: HeadOutputs) -> None:
        self._sites.register(call.key, call.heads, call.cross)
        if call.key not in self._seen:  # copies: the model may write into its own tensors later
            problem = replace(call.problem, q=call.problem.q.clone(), k=call.problem.k.clone())
            self._seen[call.key] = _Seen(out.clone(), problem, call.real_rows)

    def end(self, batch: Batch, run: BatchRun) -> None:
        seen = self._seen
        if not self._groups:
            sizes = {key: one.heads.shape[3] for key, one in seen.items()}
            self._groups = [self._group(sites, sizes) for sites in self._grouped(seen)]
        for group in self._groups:
            self._sum(group, seen, batch.index)
        self.batches += 1
        self._sites, self._seen = Sites(), {}

    def _grouped(self, seen: Mapping[Key, _Seen]) -> list[list[Site]]:
        """The attentions that ran; those about the same tokens together."""
        sites = list(self._sites)
        if self.layers is not None:
            for label in self.layers:
                self._sites.layer(label)
            sites = [site for site in sites if site.label in self.layers]
        groups: dict[tuple[str, int, int], list[Site]] = {}
        for site in sites:
            stack = site.stack.removesuffix("_cross") if site.stack != "cross" else "decoder"
            shape = seen[site.key].heads.shape
            groups.setdefault((stack, shape[0], shape[2]), []).append(site)
        return list(groups.values())

    def _group(self, sites: list[Site], value_dims: Mapping[Key, int]) -> _Group:
        W_O = [w for site in sites for w in self._written(site, value_dims[site.key])]
        outputs = OutputSimilarity([w.shape[1] for w in W_O], W_O, largest=self.largest, seed=self.seed)
        group = _Group(sites, outputs, {})
        for cross in dict.fromkeys(site.cross for site in sites):
            group.attention[cross] = AttentionDistances(len(_names(group.looking(cross))), seed=self.seed)
        return group

    def _written(self, site: Site, value_dim: int) -> list[Float[Tensor, "d_out value_dim"]]:
        """W_O of every head; the identity where it is not known."""
        if site.key in self.weights.layers:
            return list(self.weights.layers[site.key].W_O)
        return [torch.eye(value_dim, dtype=torch.float64)] * site.heads

    def _sum(self, group: _Group, seen: Mapping[Key, _Seen], index: int) -> None:
        attentions = [seen[site.key] for site in group.sites]
        real = attentions[0].real
        for site, one in zip(group.sites, attentions, strict=True):
            if one.real.shape != real.shape:
                raise MultiheadError(
                    f"in batch {index} {site.label} has other tokens than {group.sites[0].label}",
                    hint="compare one of them at a time: layers=[...]",
                )
        rows = [z for one in attentions for z in one.heads.transpose(1, 2)[real].unbind(1)]
        finite = torch.stack([z.isfinite().all(-1) for z in rows]).all(0)
        group.outputs.add([z[finite] for z in rows])
        for cross, distances in group.attention.items():
            problems = [seen[site.key].problem for site in group.looking(cross)]
            if any(problem.packing is not None for problem in problems):
                self._because("attention", "rows were packed without padding: run with mask.lengths to see them")
            elif len({problem.frame.keys for problem in problems}) > 1:
                self._because("attention", "layers have different numbers of keys")
            else:
                distances.add(problems, real, index)

    def _because(self, measure: str, reason: str) -> None:
        known = self._undefined.setdefault(measure, [])
        if reason not in known:
            known.append(reason)

    # ---- states and columns -------------------------------------------------------------------

    def merge(self, later: SimilaritySum) -> None:
        if not later._groups:
            return
        if not self._groups:
            self.load(later.state())
            return
        if [group.sites for group in self._groups] != [group.sites for group in later._groups]:
            raise MultiheadError(
                "two parts of the corpus ran different attentions", hint="every batch must run the whole model"
            )
        for mine, other in zip(self._groups, later._groups, strict=True):
            mine.outputs.merge(other.outputs)
            for cross, distances in mine.attention.items():
                distances.merge(other.attention[cross])
        for measure, reasons in later._undefined.items():
            for reason in reasons:
                self._because(measure, reason)
        self.batches += later.batches
        self.note(later.notes)

    def state(self) -> dict[str, Any]:
        groups = [
            {
                "sites": [[s.path, s.call_index, s.stack, s.layer, s.heads, int(s.cross)] for s in group.sites],
                "value_dims": group.outputs.value_dims(group.sites),
                "outputs": group.outputs.state(),
                "attention": [one.state() for _, one in sorted(group.attention.items())],
            }
            for group in self._groups
        ]
        undefined = {measure: list(reasons) for measure, reasons in self._undefined.items()}
        return {"batches": self.batches, "notes": list(self.notes), "undefined": undefined, "groups": groups}

    def load(self, state: State) -> None:
        self.batches, self.notes, self._groups = int(state["batches"]), list(state["notes"]), []
        self._undefined = {measure: list(reasons) for measure, reasons in state["undefined"].items()}
        for saved in state["groups"]:
            sites = [
                Site(path, index, stack, layer, heads, bool(cross))
                for path, index, stack, layer, heads, cross in saved["sites"]
            ]
            sizes = {site.key: int(size) for site, size in zip(sites, saved["value_dims"], strict=True)}
            group = self._group(sites, sizes)
            group.outputs.load(saved["outputs"])
            for (_, one), distances in zip(sorted(group.attention.items()), saved["attention"], strict=True):
                one.load(distances)
            self._groups.append(group)

    def columns(self) -> HeadTable:
        return self.result().table

    def result(self) -> Similarity:
        if not self._groups:
            raise MultiheadError("no batch has run yet", hint="run(model, corpus, [sums]) first")
        sites = [site for group in self._groups for site in group.sites]
        place = {name: at for at, name in enumerate(_names(sites))}
        undefined = {name: list(why) for name, why in self._undefined.items()}
        pairs = {
            name: torch.full((len(place), len(place)), torch.nan, dtype=torch.float64)
            for name in ("correlation", "cka", "attention")
        }
        for group in self._groups:
            at = [place[name] for name in group.names]
            cka = group.outputs.cka()
            _put(pairs["cka"], at, cka)
            if "correlation" not in self._undefined:
                _put(pairs["correlation"], at, group.outputs.correlation())
            still = [n for n, v in zip(group.names, cka.diagonal().isnan().tolist(), strict=True) if v]
            if still:
                for name in ("correlation", "cka"):
                    undefined.setdefault(name, []).append(f"the output of {', '.join(still)} does not vary")
            for cross, distances in group.attention.items():
                _put(pairs["attention"], [place[n] for n in _names(group.looking(cross))], distances.mean())
        if len(self._groups) > 1:
            for name in ("correlation", "cka"):
                undefined.setdefault(name, []).append(
                    "heads of different stacks say something about different tokens"
                )
        if sum(len(group.attention) for group in self._groups) > 1:
            undefined.setdefault("attention", []).append("heads that look at different keys do not compare")
        pairs |= self._by_weights(sites, undefined)
        about = {
            "tokens": sum(group.outputs.tokens for group in self._groups),
            "batches": self.batches,
            "cka_by_chance": max(group.outputs.chance for group in self._groups),
            "notes": [*self.notes, *self._sketches(), *self._few()],
        }
        ordered = {name: pairs[name] for name in PAIRS}
        return Similarity(tuple(place), ordered, undefined, about, self.by, self.within)

    def _by_weights(self, sites: Sequence[Site], undefined: dict[str, list[str]]) -> dict[str, Tensor]:
        if any(site.key not in self.weights.layers for site in sites):
            nothing = torch.full((len(_names(sites)),) * 2, torch.nan, dtype=torch.float64)
            return {"write": nothing, "read": nothing.clone()}
        both = [spaces(self.weights.layers[site.key].head(head)) for site in sites for head in range(site.heads)]
        empty = [n for n, (w, _) in zip(_names(sites), both, strict=True) if not w.shape[1]]
        if empty:
            for name in ("write", "read"):
                undefined.setdefault(name, []).append(f"W_O W_V of {', '.join(empty)} is 0")
        return {"write": overlaps([w for w, _ in both]), "read": overlaps([r for _, r in both])}

    def _few(self) -> list[str]:
        """A word on data that is too little."""
        group = max(self._groups, key=lambda g: g.outputs.chance)
        if group.outputs.chance <= CHANCE:
            return []
        enough = math.ceil(max(group.outputs.sizes) * (1 / CHANCE - 1))
        return [
            f"{group.outputs.tokens} tokens are few: heads with nothing in common would have a cka of "
            f"{group.outputs.chance:.2f}; {enough} tokens would do"
        ]

    def _sketches(self) -> list[str]:
        return [
            f"cka of {group.sites[0].label} … {group.sites[-1].label} is a sketch of {group.outputs.sketched} "
            f"numbers per head: its relative standard deviation is at most {group.outputs.error:.2f}"
            for group in self._groups
            if group.outputs.sketched
        ]


def _names(sites: Sequence[Site]) -> list[str]:
    return [site.name(head) for site in sites for head in range(site.heads)]


def _put(whole: Float[Tensor, "head other"], at: Sequence[int], part: Float[Tensor, "some some"]) -> None:
    rows = torch.tensor(list(at))
    whole[rows[:, None], rows] = part
