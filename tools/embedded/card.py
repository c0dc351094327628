"""The model card: what was trained, how, and what came out. Every number is measured on the model.

>>> from embedded.card import read
>>> found = read()
>>> found["recipe"]["seed"], found["abilities"]["agreement"] > 0.9
(1, True)
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from embedded.abilities import abilities, by_head, marking, needed, pointing
from embedded.train import Recipe, held_out_loss
from multihead._base.labels import without_value
from multihead.measures.kinds.head_shares import SHARES
from multihead.measures.kinds.kinds import kinds as kinds_of
from multihead.sources.embedded import FOLDER
from multihead.sources.embedded.network import EmbeddedModel
from multihead.sources.embedded.tokenizer import WordTokenizer

NEEDED = 0.8
"""An ability that is below this without a head needs it."""

NUMBERS, TEXT = "card.json", "README.md"


def read(folder: Path = FOLDER) -> dict[str, Any]:
    """The numbers beside the weights of a folder."""
    return json.loads((folder / NUMBERS).read_text(encoding="utf-8"))


def measured(model: EmbeddedModel, recipe: Recipe, losses: Sequence[float], seconds: float) -> dict[str, Any]:
    """The numbers of a model that was trained."""
    tokenizer = WordTokenizer()
    found = kinds_of(model, tokenizer.sample_texts(), tokenizer=tokenizer)
    heads = [e.head for e in found]
    left = by_head(model, heads)
    whole = left.pop("")
    removed = {name: needed(model, name, heads) for name in whole}
    looks = pointing(model)
    agreeing = max(heads, key=lambda head: looks[head].subject * (left[head]["agreement"] < NEEDED))
    marks = marking(model)
    names = {e.head: without_value(e.kind) for e in found}
    by_kind = {kind: [head for head in heads if names[head] == kind] for kind in dict.fromkeys(names.values())}
    last = losses[-50:]
    return {
        "recipe": asdict(recipe),
        "parameters": sum(p.numel() for p in model.parameters()),
        "words": recipe.steps * recipe.documents * recipe.tokens,
        "seconds": round(seconds),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "loss": {"first": losses[0], "last": sum(last) / len(last), "held out": held_out_loss(model)},
        "kinds": {e.head: {"kind": names[e.head], "score": e.score, "control": e.control} for e in found},
        "abilities": whole,
        "without": {name: {"heads": some, "left": value} for name, (some, value) in removed.items()},
        "by head": left,
        "by kind": {
            kind: {"heads": some, "left": abilities(model, without=some)} for kind, some in by_kind.items()
        },
        "pointing": {"head": agreeing, **asdict(looks[agreeing])},
        "marking": {"head": max(heads, key=lambda head: marks[head]), "weight": max(marks.values())},
    }


def sister(folder: Path) -> dict[str, Any]:
    """What the card reports of a model trained from a different seed, read from that model's card."""
    card = read(folder)
    return {
        "seed": card["recipe"]["seed"],
        "steps": card["recipe"]["steps"],
        "held out": card["loss"]["held out"],
        "abilities": card["abilities"],
        "kinds": {kind: k["heads"] for kind, k in card["by kind"].items()},
    }


def write(card: dict[str, Any], folder: Path) -> None:
    """The numbers, and the same for people, into a folder."""
    (folder / NUMBERS).write_text(json.dumps(_rounded(card), indent=1) + "\n", encoding="utf-8")
    (folder / TEXT).write_text(text(card), encoding="utf-8")


def _rounded(x: Any) -> Any:
    if isinstance(x, dict):
        return {key: _rounded(value) for key, value in x.items()}
    return (None if x != x else round(x, 4)) if isinstance(x, float) else x


def text(card: dict[str, Any]) -> str:
    """The card in Markdown."""
    recipe, loss, points, names = card["recipe"], card["loss"], card["pointing"], list(card["abilities"])
    config = recipe["config"]
    sizes = f"{config['layers']} layers of {config['heads']} heads, width {config['width']}"
    steps = f"{recipe['steps']} steps of {recipe['documents']} documents of {recipe['tokens']} words"
    took = f"{card['seconds'] / 60:.0f} minutes at {card['threads']} thread(s), torch {card['torch']}"
    losses = (
        f"{loss['first']:.2f} at first, {loss['last']:.2f} at the end, {loss['held out']:.2f} on held-out documents"
    )
    skills = "\n".join(
        f"| {name} | {card['abilities'][name]:.2f} | {without['left']:.2f} | {', '.join(without['heads'])} |"
        for name, without in card["without"].items()
    )
    named = "\n".join(
        f"| {head} | {k['kind']} | {_number(k['score'])} | {_number(k['control'])} | "
        + " | ".join(f"{card['by head'][head][name]:.2f}" for name in card["abilities"])
        + " |"
        for head, k in card["kinds"].items()
    )
    kinds = "\n".join(
        f"| all {kind} heads ({len(k['heads'])}) | " + " | ".join(f"{k['left'][name]:.2f}" for name in names) + " |"
        for kind, k in card["by kind"].items()
    )
    return f"""# The embedded model

A causal language model of {card["parameters"]:,} parameters: {sizes}, {config["vocab_size"]} words. Its attention
is `mh.MultiHeadAttention` with rotary positions. It comes with multihead (Apache-2.0), is for learning and for
tests, and knows nothing of the world.

- **Data**: {card["words"]:,} words of a language that `language.py` writes (seed {recipe["seed"]}): verbs that
  agree with far subjects, marks that say tense and place, surnames drawn for each document, strings that
  come again, brackets of three kinds. No text by people, no personal data.
- **Training**: `make embedded OUT=folder`: {steps}, AdamW;
  {took}.
- **Loss** (nats per word): {losses}.

| ability | intact | without these heads | heads |
|---|---|---|---|
{skills}

Each value is a share of cases (see `abilities.py`). The heads are the smallest set without which the ability is
lost (`abilities.needed`). Among the heads that agreement needs, {points["head"]} looks most at the subject: from
the place before the verb it gives {points["subject"]:.2f} of its weight to the subject and
{points["attractors"]:.2f} to the two nouns of the other number in between, and in {100 * points["first"]:.0f} % of
the sentences no word gets more than the subject. From the same place {card["marking"]["head"]} gives
{card["marking"]["weight"]:.2f} of its weight to the marks of its sentence, which carry tense and place.

| head | kind | score | chance | {" | ".join(f"{name} left" for name in names)} |
|---|---|---|---|{"---|" * len(names)}
{named}

| without | {" | ".join(f"{name} left" for name in names)} |
|---|{"---|" * len(names)}
{kinds}

Kinds are by `mh.kinds` on 40 held-out documents; `match` is the leading share of a head of which no finer kind
stands. Heads of the first layer begin with a mild preference for
the distances 0, 1, 2 and 3 (`train.py`); all else is drawn at random. Training again on another machine gives
other last bits and so other weights, and jobs may fall to other heads.{_sisters(card.get("sisters", []))}
"""


def _sisters(sisters: Sequence[dict[str, Any]]) -> str:
    """A table of the other seeds that were trained, in the order of the abilities of the card."""
    if not sisters:
        return ""
    names = list(sisters[0]["abilities"])
    rows = "\n".join(
        f"| {s['seed']} | {s['steps']} | {s['held out']:.2f} | "
        + " | ".join(f"{s['abilities'][name]:.2f}" for name in names)
        + f" | {', '.join(kind for kind in s['kinds'] if kind not in SHARES)} |"
        for s in sisters
    )
    return f"""

This run was chosen among {len(sisters) + 1} for its abilities. The others:

| seed | steps | held-out loss | {" | ".join(names)} | kinds of heads |
|---|---|---|{"---|" * (len(names) + 1)}
{rows}"""


def _number(x: float | None) -> str:
    return "" if x is None or x != x else f"{x:.2f}"
