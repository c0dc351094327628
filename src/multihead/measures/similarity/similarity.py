"""The numbers of every pair of heads as a stage: one plain run of the model per batch, sums that can be put down.

Heads compare where they say something about the same tokens. So attentions fall into groups: an encoder's; a
decoder's with its cross-attention, whose queries are the decoder's tokens. Attention rows compare where also the
keys are the same. Between groups there is no number but for the weights, and the result says why.

>>> import torch
>>> from torch import nn
>>> from multihead.measures.similarity.similarity import SimilarityStage
>>> model = nn.TransformerEncoderLayer(12, 3, batch_first=True).eval()
>>> stage = SimilarityStage(model)
>>> stage.step({"src": torch.randn(5, 7, 12)})
>>> stage.table.heads
('L0H0', 'L0H1', 'L0H2')
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Batch
from multihead.errors import MultiheadError, SizeError
from multihead.layer.problem import Problem
from multihead.measures.importance.mean_outputs import real_rows
from multihead.measures.similarity.attention import AttentionDistances
from multihead.measures.similarity.outputs import LARGEST, OutputSimilarity
from multihead.measures.similarity.ov_circuits import overlaps, spaces
from multihead.measures.similarity.result import PAIRS, Similarity
from multihead.model.anatomy import Anatomy, LayerAnatomy, anatomy
from multihead.model.call import Call, Compute
from multihead.model.forward import Forward
from multihead.model.known import note, seen_sites
from multihead.model.sites import Key, Site
from multihead.table.table import HeadTable

CHANCE = 0.05
"""A larger CKA by chance is said to be too large."""


@dataclass(frozen=True)
class _Seen:
    """One attention on one batch."""

    heads: HeadOutputs
    problem: Problem
    real: Bool[Tensor, "batch query"]
    cross: bool


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


class SimilarityStage:
    """A stage: outputs, attention and weights of all heads, pair by pair.

    Memory: q, k and the outputs of all layers of one batch, linear in tokens; the covariance of all heads of a
    group, see `OutputSimilarity`; a block of attention rows, see `jensen`.
    """

    name = "similarity"

    def __init__(
        self,
        model: nn.Module,
        *,
        layers: Sequence[str] | None = None,
        largest: int = LARGEST,
        seed: int = 0,
        by: str = "cka",
        within: float = 0.5,
    ) -> None:
        if not 0 <= within <= 1:
            raise SizeError(f"within must be in [0, 1], got {within}", hint="it is a distance; 0.5 is the default")
        self.model, self.layers, self.largest, self.seed = model, layers, largest, seed
        self.by, self.within = by, within
        self.batches = 0
        self._index = 0
        """number of the next batch in the corpus"""
        self.notes: list[str] = []
        self._groups: list[_Group] = []
        self._anatomy: dict[Key, LayerAnatomy] = {}
        self._value_dims: dict[Key, int] = {}
        self._undefined: dict[str, list[str]] = {}
        self._kept: Mapping[str, Any] | None = None  # a state that waits for the anatomy

    # ---- one batch ----------------------------------------------------------------------------

    @torch.no_grad()
    def step(self, batch: Batch) -> None:
        seen = self._look(batch)
        self._value_dims |= {key: one.heads.shape[3] for key, one in seen.items()}
        if not self._groups:
            self._begin(self._grouped(seen) if self._kept is None else self._kept_groups(), batch)
        for group in self._groups:
            self._add(group, seen)
        self.batches, self._index = self.batches + 1, self._index + 1

    def _look(self, batch: Batch) -> dict[Key, _Seen]:
        found: dict[Key, _Seen] = {}

        def listen(call: Call, run: Compute) -> HeadOutputs:
            heads = run()
            note(self.model, call)
            # Copies: the model may write into its own tensors later.
            problem = replace(call.problem, q=call.problem.q.clone(), k=call.problem.k.clone())
            kept = _Seen(heads.clone(), problem, real_rows(call, heads), call.cross)
            found.setdefault(call.key, kept)
            return heads

        forward = Forward(self.model)
        forward(batch, listen)
        self._say(forward.notes)
        return found

    def _grouped(self, seen: Mapping[Key, _Seen]) -> list[list[Site]]:
        """The attentions that ran, those about the same tokens together."""
        named = seen_sites(self.model)
        sites = [replace(named[key], cross=one.cross) for key, one in seen.items()]
        if self.layers is not None:
            missing = next((x for x in self.layers if x not in {s.label for s in sites}), None)
            if missing is not None:
                labels = ", ".join(s.label for s in sites)
                raise SizeError(f"there is no layer {missing!r}: found {labels}", hint="layers count from 0")
            sites = [s for s in sites if s.label in self.layers]
        groups: dict[tuple[str, int, int], list[Site]] = {}
        for site in sites:
            whose = site.stack.removesuffix("_cross") if site.stack != "cross" else "decoder"
            shape = seen[site.key].heads.shape
            groups.setdefault((whose, shape[0], shape[2]), []).append(site)
        return list(groups.values())

    def _begin(self, groups: Sequence[list[Site]], batch: Batch | None) -> None:
        self._anatomy = self._anatomy or self._weights(batch)
        for sites in groups:
            W_O = [w for site in sites for w in self._written(site)]
            outputs = OutputSimilarity([w.shape[1] for w in W_O], W_O, largest=self.largest, seed=self.seed)
            group = _Group(sites, outputs, {})
            for cross in dict.fromkeys(site.cross for site in sites):
                group.attention[cross] = AttentionDistances(len(_names(group.looking(cross))), seed=self.seed)
            self._groups.append(group)
        if self._kept is not None:
            for group, kept in zip(self._groups, self._kept["groups"], strict=True):
                group.outputs.load(kept["outputs"])
                for (_, one), state in zip(sorted(group.attention.items()), kept["attention"], strict=True):
                    one.load(state)
            self._kept = None

    def _weights(self, batch: Batch | None) -> dict[Key, LayerAnatomy]:
        """W_V and W_O of every head, on a made-up input or, where the model takes none, on the batch."""
        found: Anatomy | None = None
        why = ""
        for inputs in (None, batch):
            try:
                found = anatomy(self.model, inputs) if inputs is not None else anatomy(self.model)
                break
            except (MultiheadError, RuntimeError, ValueError, TypeError, AttributeError) as failed:
                why = str(failed).partition("\n")[0]
        if found is None:
            self._undefined |= {n: [f"the weights were not found: {why}"] for n in ("correlation", "write", "read")}
            self._say([f"cka is of the heads' outputs before W_O, which was not found: {why}"])
            return {}
        return {layer.site.key: layer for layer in found}

    def _written(self, site: Site) -> list[Float[Tensor, "d_out value_dim"]]:
        """W_O of every head; where it is not known, one that leaves the output as it is."""
        if site.key in self._anatomy:
            return list(self._anatomy[site.key].W_O)
        return [torch.eye(self._value_dims[site.key], dtype=torch.float64)] * site.heads

    def _add(self, group: _Group, seen: Mapping[Key, _Seen]) -> None:
        mine = [seen[site.key] for site in group.sites]
        real = mine[0].real
        odd = next((s for s, one in zip(group.sites, mine, strict=True) if one.real.shape != real.shape), None)
        if odd is not None:
            raise MultiheadError(
                f"in batch {self.batches} {odd.label} has other tokens than {group.sites[0].label}",
                hint="look at one of them at a time: layers=[...]",
            )
        rows = [z for one in mine for z in one.heads.transpose(1, 2)[real].unbind(1)]
        good = torch.stack([z.isfinite().all(-1) for z in rows]).all(0)
        group.outputs.add([z[good] for z in rows])
        for cross, distances in group.attention.items():
            problems = [seen[site.key].problem for site in group.looking(cross)]
            if any(p.packing is not None for p in problems):
                self._because("attention", "rows were packed without padding: run with mask.lengths to see them")
            elif len({p.frame.keys for p in problems}) > 1:
                self._because("attention", "layers look at keys of different number")
            else:
                distances.add(problems, real, self._index)

    def _say(self, notes: Sequence[str]) -> None:
        self.notes += [note for note in notes if note not in self.notes]

    def _because(self, measure: str, why: str) -> None:
        known = self._undefined.setdefault(measure, [])
        if why not in known:
            known.append(why)

    # ---- keeping and reading ------------------------------------------------------------------

    def begin(self, batch: int) -> None:
        self._index = batch

    @staticmethod
    def merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
        if not first["groups"] or not second["groups"]:
            return dict(first if first["groups"] else second)
        wrong = [g["sites"] for g in first["groups"]] != [g["sites"] for g in second["groups"]]
        if wrong:
            raise MultiheadError(
                "a part of the corpus ran other attentions", hint="every batch must run the whole model"
            )
        groups = [
            {
                "sites": a["sites"],
                "outputs": OutputSimilarity.merged(a["outputs"], b["outputs"]),
                "attention": [
                    {name: x[name] + y[name] for name in ("total", "count")}
                    for x, y in zip(a["attention"], b["attention"], strict=True)
                ],
            }
            for a, b in zip(first["groups"], second["groups"], strict=True)
        ]
        undefined: dict[str, list[str]] = {name: list(why) for name, why in first["undefined"].items()}
        for name, why in second["undefined"].items():
            undefined[name] = [*undefined.get(name, []), *(w for w in why if w not in undefined.get(name, []))]
        return {
            **first,
            "batches": first["batches"] + second["batches"],
            "index": max(first["index"], second["index"]),
            "notes": [*first["notes"], *(n for n in second["notes"] if n not in first["notes"])],
            "undefined": undefined,
            "groups": groups,
        }

    def state(self) -> dict[str, Any]:
        if self._kept is not None:
            return dict(self._kept)
        groups = [
            {
                "sites": [[s.path, s.call_index, s.stack, s.layer, s.heads, int(s.cross)] for s in group.sites],
                "outputs": group.outputs.state(),
                "attention": [one.state() for _, one in sorted(group.attention.items())],
            }
            for group in self._groups
        ]
        undefined = {name: list(why) for name, why in self._undefined.items()}
        sizes = [[*key, size] for key, size in self._value_dims.items()]
        return {
            "batches": self.batches,
            "index": self._index,
            "notes": list(self.notes),
            "undefined": undefined,
            "value_dims": sizes,
            "groups": groups,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        self.batches, self._index, self.notes = int(state["batches"]), int(state["index"]), list(state["notes"])
        self._undefined = {name: list(why) for name, why in state["undefined"].items()}
        self._value_dims = {(path, call_index): size for path, call_index, size in state["value_dims"]}
        self._groups, self._kept = [], state if state["groups"] else None

    def _kept_groups(self) -> list[list[Site]]:
        assert self._kept is not None
        return [
            [
                Site(path, call_index, stack, layer, heads, bool(cross))
                for path, call_index, stack, layer, heads, cross in g["sites"]
            ]
            for g in self._kept["groups"]
        ]

    @property
    def table(self) -> HeadTable:
        return self.result.table

    @property
    def result(self) -> Similarity:
        if not self._groups and self._kept is not None:
            self._begin(self._kept_groups(), None)
        if not self._groups:
            raise MultiheadError("no batch was taken in yet", hint="stage.step(batch) first")
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
        if any(site.key not in self._anatomy for site in sites):
            nothing = torch.full((len(_names(sites)),) * 2, torch.nan, dtype=torch.float64)
            return {"write": nothing, "read": nothing.clone()}
        both = [spaces(self._anatomy[site.key].head(head)) for site in sites for head in range(site.heads)]
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
