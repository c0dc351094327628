"""How similar every two heads are: an accumulator over plain forwards.

The outputs of two heads can be compared only on the same tokens. So attentions form groups: those of an encoder,
and those of a decoder with its cross-attention, whose queries are the decoder's tokens. Attention rows can be
compared only if their keys are the same, too. Between groups only the weights are compared, and the result holds
the reason.

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
from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from multihead._base.arguments import check_list, check_seed
from multihead._base.progress import Progress, check_progress, shown_progress
from multihead._base.shapes import HeadOutputs
from multihead.corpus.accumulator import Accumulator, Batch, BatchRun, State
from multihead.corpus.batches import BATCH_SIZE, Document
from multihead.corpus.documents import Corpus, rereadable
from multihead.corpus.language import check_language
from multihead.corpus.run import run, with_total
from multihead.errors import MultiheadError, SizeError
from multihead.layer import Problem
from multihead.measures.similarity.attention_distances import AttentionDistances
from multihead.measures.similarity.output_similarity import LARGEST, OutputSimilarity
from multihead.measures.similarity.ov_circuits import OVWeights, find_weights, overlaps, spaces
from multihead.measures.similarity.similarity_result import PAIRS, Similarity
from multihead.model.call import Call
from multihead.model.sites import Key, Site, Sites
from multihead.table.table import HeadTable

CHANCE = 0.05
"""If the CKA of independent heads exceeds this, the result has a note."""


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
    progress: bool | Progress | None = None,
) -> Similarity:
    """Measure how similar every two heads are, in a layer and across layers, in one pass over `data`.

    Args:
        data: texts (with a `tokenizer`), lists of token ids, or batches.
        by: the measure that ranks pairs and forms clusters: correlation, cka, attention, write or read.
        within: heads of a cluster are on average closer than this (1 − by, or the distance for attention).
        layers: restrict to these, ["L0", "L3"]; default: all.
        batch_size: documents at a time.
        max_tokens: longer documents are cut into pieces of this length; default: the positions of the model.
        largest: limit for the covariance, in bytes; above it, CKA is a sketch with a reported error.
        seed: of the sketch, and of the attention rows that are compared.
        progress: True shows bars on a terminal; a function is called with ("similarity", done, total).

    Returns:
        A `Similarity`: `result["cka"]` is a matrix, `result.most_similar()` the closest pairs, `result.groups()`
        the clusters.

    Raises:
        SizeError: if `by` is unknown, `within` is outside [0, 1], or a layer does not exist.
        MultiheadError: if the data contains no text, or text without a tokenizer.

    >>> import multihead as mh
    >>> model, tokenizer = mh.embedded()
    >>> result = mh.similarity(model, tokenizer.sample_texts()[:8], tokenizer=tokenizer)
    >>> result["cka"].shape, result.most_similar(1)[0][:2]
    (torch.Size([12, 12]), ('L0H3', 'L1H1'))
    """
    if by not in PAIRS:
        raise SizeError(f"by must be one of {', '.join(PAIRS)}, got {by!r}", hint='by="cka"')
    if layers is not None:
        check_list("layers", layers, "layers", hint='layers=["L0", "L3"]')
    check_seed(seed)
    check_progress(progress)
    weights = find_weights(model)
    options: dict[str, Any] = {"tokenizer": tokenizer, "batch_size": batch_size, "max_tokens": max_tokens}
    if weights.reason:  # the weights were not found on an example input: try the data
        data = rereadable(data)
        weights = find_weights(model, Corpus(model, data, **options).first().inputs)
    corpus = Corpus(model, data, **options)
    check_language(tokenizer, corpus.documents, "the text")
    sums = SimilaritySum(weights, layers=layers, largest=largest, seed=seed, by=by, within=within)
    with shown_progress(progress) as shown:
        passes = with_total(shown, corpus)
        run(model, corpus, [sums], progress=None if passes is None else partial(passes, sums.name))
    return sums.result()


@dataclass(frozen=True)
class _BatchAttention:
    """One attention on one batch."""

    heads: HeadOutputs
    problem: Problem
    real: Bool[Tensor, "batch query"]


@dataclass
class _Group:
    """Attentions with queries from the same tokens, and their sums."""

    sites: list[Site]
    outputs: OutputSimilarity
    attention: dict[bool, AttentionDistances]  # by whether it is cross-attention

    @property
    def names(self) -> list[str]:
        return _names(self.sites)

    def sites_with(self, cross: bool) -> list[Site]:
        return [site for site in self.sites if site.cross == cross]


class SimilaritySum(Accumulator):
    """Compares the outputs, attention and weights of all pairs of heads.

    Memory: q, k and the outputs of all layers for one batch, linear in tokens; the covariance of all heads of a
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
        self._sites, self._seen = Sites(), dict[Key, _BatchAttention]()  # of the current batch
        if weights.reason:
            for measure in ("correlation", "write", "read"):
                self._add_reason(measure, f"the weights were not found: {weights.reason}")
            self.notes.append(f"cka compares head outputs before W_O, which was not found: {weights.reason}")

    # ---- one batch ----------------------------------------------------------------------------

    def add(self, call: Call, out: HeadOutputs) -> None:
        """Keep the problem and head outputs of an attention call, to compare at the end of the batch."""
        self._sites.register(call.site)
        if call.key not in self._seen:  # copies, because the model may modify its tensors in place later
            problem = replace(call.problem, q=call.problem.q.clone(), k=call.problem.k.clone())
            self._seen[call.key] = _BatchAttention(out.clone(), problem, call.real_rows)

    def end(self, batch: Batch, run: BatchRun) -> None:
        """Compare every two heads of the batch that ran over the same tokens."""
        seen = self._seen
        if not self._groups:
            sizes = {key: attention.heads.shape[3] for key, attention in seen.items()}
            self._groups = [self._group(sites, sizes) for sites in self._grouped(seen)]
        for group in self._groups:
            self._sum(group, seen, batch.index)
        self.batches += 1
        self._sites, self._seen = Sites(), {}

    def _grouped(self, seen: Mapping[Key, _BatchAttention]) -> list[list[Site]]:
        """The attentions whose heads have a similarity: those over the same query tokens."""
        sites = list(self._sites)
        if self.layers is not None:
            for label in self.layers:
                self._sites.layer(label)
            sites = [site for site in sites if site.label in self.layers]
        groups: dict[tuple[str, int, int], list[Site]] = {}
        stacks = {site.stack for site in sites}
        asking = next((stack for stack in ("decoder", "main", "", "encoder") if stack in stacks), "decoder")
        for site in sites:
            stack = site.stack.removesuffix("_cross") if site.stack != "cross" else asking
            shape = seen[site.key].heads.shape
            groups.setdefault((stack, shape[0], shape[2]), []).append(site)
        return list(groups.values())

    def _group(self, sites: list[Site], value_dims: Mapping[Key, int]) -> _Group:
        """Empty similarity sums of attentions over the same tokens."""
        W_O = [w for site in sites for w in self._output_weights(site, value_dims[site.key])]
        outputs = OutputSimilarity([w.shape[1] for w in W_O], W_O, largest=self.largest, seed=self.seed)
        group = _Group(sites, outputs, {})
        for cross in dict.fromkeys(site.cross for site in sites):
            group.attention[cross] = AttentionDistances(len(_names(group.sites_with(cross))), seed=self.seed)
        return group

    def _output_weights(self, site: Site, value_dim: int) -> list[Float[Tensor, "d_out value_dim"]]:
        """W_O of every head, for the similarity of outputs; the identity if it is unknown."""
        if site.key in self.weights.layers:
            return list(self.weights.layers[site.key].W_O)
        return [torch.eye(value_dim, dtype=torch.float64)] * site.heads

    def _sum(self, group: _Group, seen: Mapping[Key, _BatchAttention], index: int) -> None:
        """Add a batch to the similarity sums of a group."""
        attentions = [seen[site.key] for site in group.sites]
        real = attentions[0].real
        for site, attention in zip(group.sites, attentions, strict=True):
            if attention.real.shape != real.shape:
                raise MultiheadError(
                    f"{site.label} and {group.sites[0].label} must have the same tokens, got shapes "
                    f"{tuple(attention.real.shape)} and {tuple(real.shape)} in batch {index}",
                    hint="compare them separately: layers=[...]",
                )
        rows = [z for attention in attentions for z in attention.heads.transpose(1, 2)[real].unbind(1)]
        finite = torch.stack([z.isfinite().all(-1) for z in rows]).all(0)
        group.outputs.add([z[finite] for z in rows])
        for cross, distances in group.attention.items():
            problems = [seen[site.key].problem for site in group.sites_with(cross)]
            if len({problem.coordinates.keys for problem in problems}) > 1:
                self._add_reason("attention", "layers have different numbers of keys")
            else:
                distances.add(problems, real, index)

    def _add_reason(self, measure: str, reason: str) -> None:
        reasons = self._undefined.setdefault(measure, [])
        if reason not in reasons:
            reasons.append(reason)

    # ---- states and columns -------------------------------------------------------------------

    def merge(self, later: SimilaritySum) -> None:
        """Add the similarity sums of a later part of the corpus."""
        if not later._groups:
            return
        if not self._groups:
            self.load(later.state())
            return
        if [group.sites for group in self._groups] != [group.sites for group in later._groups]:
            raise MultiheadError(
                "all parts of the corpus must run the same attentions, but two differ",
                hint="every batch must run the whole model",
            )
        for group, other in zip(self._groups, later._groups, strict=True):
            group.outputs.merge(other.outputs)
            for cross, distances in group.attention.items():
                distances.merge(other.attention[cross])
        for measure, reasons in later._undefined.items():
            for reason in reasons:
                self._add_reason(measure, reason)
        self.batches += later.batches
        self.note(later.notes)

    def state(self) -> dict[str, Any]:
        """The similarity sums as plain data."""
        groups = [
            {
                "sites": Sites(group.sites).state(),
                "value_dims": group.outputs.value_dims(group.sites),
                "outputs": group.outputs.state(),
                "attention": [distances.state() for _, distances in sorted(group.attention.items())],
            }
            for group in self._groups
        ]
        undefined = {measure: list(reasons) for measure, reasons in self._undefined.items()}
        return {"batches": self.batches, "notes": list(self.notes), "undefined": undefined, "groups": groups}

    def load(self, state: State) -> None:
        """Restore the similarity sums."""
        self.batches, self.notes, self._groups = int(state["batches"]), list(state["notes"]), []
        self._undefined = {measure: list(reasons) for measure, reasons in state["undefined"].items()}
        for saved in state["groups"]:
            sites = list(Sites.from_state(saved["sites"]))
            sizes = {site.key: int(size) for site, size in zip(sites, saved["value_dims"], strict=True)}
            group = self._group(sites, sizes)
            group.outputs.load(saved["outputs"])
            for (_, distances), state_of in zip(sorted(group.attention.items()), saved["attention"], strict=True):
                distances.load(state_of)
            self._groups.append(group)

    def columns(self) -> HeadTable:
        return self.result().table

    def result(self) -> Similarity:
        """The similarity of every two heads."""
        if not self._groups:
            raise MultiheadError("no batch has run yet", hint="run(model, corpus, [sums]) first")
        sites = [site for group in self._groups for site in group.sites]
        index = {name: i for i, name in enumerate(_names(sites))}
        undefined = {name: list(reasons) for name, reasons in self._undefined.items()}
        pairs = {
            name: torch.full((len(index), len(index)), torch.nan, dtype=torch.float64)
            for name in ("correlation", "cka", "attention")
        }
        for group in self._groups:
            rows = [index[name] for name in group.names]
            cka = group.outputs.cka()
            _set_block(pairs["cka"], rows, cka)
            if "correlation" not in self._undefined:
                _set_block(pairs["correlation"], rows, group.outputs.correlation())
            constant = [n for n, is_nan in zip(group.names, cka.diagonal().isnan().tolist(), strict=True) if is_nan]
            if constant:
                for name in ("correlation", "cka"):
                    undefined.setdefault(name, []).append(f"the output of {', '.join(constant)} does not vary")
            for cross, distances in group.attention.items():
                rows = [index[n] for n in _names(group.sites_with(cross))]
                _set_block(pairs["attention"], rows, distances.mean())
        if len(self._groups) > 1:
            for name in ("correlation", "cka"):
                undefined.setdefault(name, []).append("heads of different stacks have outputs at different tokens")
        if sum(len(group.attention) for group in self._groups) > 1:
            undefined.setdefault("attention", []).append("heads with different keys cannot be compared")
        pairs |= self._by_weights(sites, undefined)
        about = {
            "tokens": sum(group.outputs.tokens for group in self._groups),
            "batches": self.batches,
            "cka_by_chance": max(group.outputs.chance for group in self._groups),
            "notes": [*self.notes, *self._sketches(), *self._few_tokens()],
        }
        ordered = {name: pairs[name] for name in PAIRS}
        return Similarity(tuple(index), ordered, undefined, about, self.by, self.within)

    def _by_weights(self, sites: Sequence[Site], undefined: dict[str, list[str]]) -> dict[str, Tensor]:
        """Similarity by weights: of the subspaces that heads read and write."""
        if any(site.key not in self.weights.layers for site in sites):
            missing = torch.full((len(_names(sites)),) * 2, torch.nan, dtype=torch.float64)
            return {"write": missing, "read": missing.clone()}
        bases = [spaces(self.weights.layers[site.key].head(head)) for site in sites for head in range(site.heads)]
        empty = [n for n, (written, _) in zip(_names(sites), bases, strict=True) if not written.shape[1]]
        if empty:
            for name in ("write", "read"):
                undefined.setdefault(name, []).append(f"W_O W_V of {', '.join(empty)} is 0")
        layers = [self.weights.layers[site.key] for site in sites for _ in range(site.heads)]
        # The heads of latent attention read the latent vector of their layer.
        streams = [None if layer.latent is None else layer.site.key for layer in layers]
        if any(stream is not None for stream in streams):
            undefined.setdefault("read", []).append(
                "heads of latent attention in different layers read other vectors"
            )
        return {
            "write": overlaps([written for written, _ in bases]),
            "read": overlaps([read for _, read in bases], streams),
        }

    def _few_tokens(self) -> list[str]:
        """A note on the similarity if there are too few tokens."""
        group = max(self._groups, key=lambda g: g.outputs.chance)
        if group.outputs.chance <= CHANCE:
            return []
        enough = math.ceil(max(group.outputs.sizes) * (1 / CHANCE - 1))
        return [
            f"too few tokens ({group.outputs.tokens}): independent heads would have a cka of "
            f"{group.outputs.chance:.2f}; use at least {enough} tokens"
        ]

    def _sketches(self) -> list[str]:
        """Notes on similarities that are estimated from sketches."""
        return [
            f"cka of {group.sites[0].label} … {group.sites[-1].label} is a sketch of {group.outputs.sketched} "
            f"dimensions per head: its relative standard deviation is at most {group.outputs.error:.2f}"
            for group in self._groups
            if group.outputs.sketched
        ]


def _names(sites: Sequence[Site]) -> list[str]:
    return [name for site in sites for name in site.names]


def _set_block(pairs: Float[Tensor, "head other"], heads: Sequence[int], block: Float[Tensor, "some some"]) -> None:
    """Set the rows and columns of these heads."""
    index = torch.tensor(list(heads))
    pairs[index[:, None], index] = block
