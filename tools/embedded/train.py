"""Train the embedded model: `make embedded OUT=folder`, or `PYTHONPATH=tools python -m embedded.train -o folder`.

About five minutes of one free core. The seed gives the same documents and the same first weights everywhere; sums
in another order (threads, another processor) give other last bits and so other weights: the card tells the outcome.

>>> from multihead.sources.embedded.network import EmbeddedConfig
>>> from embedded.train import Recipe, train
>>> tiny = Recipe(steps=3, documents=2, tokens=16, config=EmbeddedConfig(214, width=8, layers=1, heads=2, hidden=8))
>>> model, losses = train(tiny)
>>> len(losses), model.training
(3, False)
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from embedded.language import Writer, sample
from embedded.lexicon import VOCABULARY
from multihead.sources.embedded.network import EmbeddedConfig, EmbeddedModel
from multihead.sources.embedded.tokenizer import WordTokenizer


@dataclass(frozen=True)
class Recipe:
    """All that the training depends on."""

    seed: int = 1
    steps: int = 2000
    documents: int = 48
    """of a step"""
    tokens: int = 72
    """of a document"""
    rate: float = 3e-3
    warm: int = 100
    """steps until the full rate; then it falls as a cosine, to a twentieth"""
    decay: float = 0.05
    config: EmbeddedConfig = field(default_factory=lambda: EmbeddedConfig(len(VOCABULARY)))


def corpus(recipe: Recipe) -> Iterator[Int[Tensor, "document token"]]:
    """Batches without end, the same for the same seed."""
    writer, tokenizer = Writer(random.Random(recipe.seed)), WordTokenizer()
    while True:
        documents = [writer.document(recipe.tokens) for _ in range(recipe.documents)]
        yield torch.tensor([tokenizer.convert_tokens_to_ids(d) for d in documents])


def train(
    recipe: Recipe, *, told: Callable[[int, float, EmbeddedModel], None] | None = None
) -> tuple[EmbeddedModel, list[float]]:
    """A model, in eval mode, and the loss of every step (nats per word); random state outside stays as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model = EmbeddedModel(recipe.config)
    prefer_distances(model)
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": recipe.decay}, {"params": vectors, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=recipe.rate, betas=(0.9, 0.98))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: _rate(step, recipe))
    losses: list[float] = []
    for step, ids in zip(range(recipe.steps), corpus(recipe), strict=False):
        loss = next_word_loss(model, ids)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        if told is not None:
            told(step, losses[-1], model)
    return model.eval(), losses


@torch.no_grad()
def prefer_distances(model: EmbeddedModel) -> None:
    """Give head h of the first layer a mild preference for the distance h: a bias of cos((distance − h) θ).

    Softmax then gives that distance about half of the weight. Without it, the model did not learn to repeat a
    string within 1,200 steps: no head finds the previous word, which induction needs.
    """
    config, attention = model.config, model.layers[0].attention
    half = config.rotary_dim // 2
    turns = torch.tensor([config.rotary_base ** (-i / half) for i in range(half)])
    size = (2 * config.head_dim**0.5) ** 0.5
    for head in range(config.heads):
        q, k = (p.bias[head * config.head_dim :][: config.rotary_dim] for p in (attention.q_proj, attention.k_proj))
        q[:half] = size
        k[:half], k[half:] = size * (head * turns).cos(), size * (head * turns).sin()


def _rate(step: int, recipe: Recipe) -> float:
    if step < recipe.warm:
        return (step + 1) / recipe.warm
    done = (step - recipe.warm) / max(1, recipe.steps - recipe.warm)
    return 0.05 + 0.95 * (1 + math.cos(math.pi * min(done, 1.0))) / 2


def next_word_loss(model: EmbeddedModel, ids: Int[Tensor, "document token"]) -> Tensor:
    """Mean cross entropy of the next word, in nats."""
    return F.cross_entropy(model(ids).logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def held_out_loss(model: EmbeddedModel) -> float:
    """On the documents of `sample`, which training does not draw."""
    tokenizer = WordTokenizer()
    with torch.no_grad():
        return next_word_loss(model, torch.tensor([tokenizer.convert_tokens_to_ids(d) for d in sample()])).item()


def main(argv: Sequence[str] | None = None) -> int:
    from embedded.card import measured, sister, write  # they measure, and stand above the model
    from multihead.errors import MultiheadError
    from multihead.store.save import check_folder, save

    parser = argparse.ArgumentParser(
        prog="python -m embedded.train", description=(__doc__ or "").partition("\n\n")[0]
    )
    parser.add_argument("-o", "--out", type=Path, required=True, metavar="DIR", help="where the model goes")
    parser.add_argument(
        "--seed", type=int, default=Recipe().seed, help="of weights and documents (default: %(default)s)"
    )
    parser.add_argument("--steps", type=int, default=Recipe().steps, help="of training (default: %(default)s)")
    parser.add_argument(
        "--sister",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="of another seed, that the card shall tell of; may be repeated",
    )
    parser.add_argument("--force", action="store_true", help="over a folder that is there")
    args = parser.parse_args(argv)
    if args.steps < 1:
        parser.error(f"--steps {args.steps} is less than 1")
    try:
        check_folder(args.out, args.force)  # before the work, not after it
    except MultiheadError as wrong:
        parser.error(str(wrong))
    recipe = replace(Recipe(), seed=args.seed, steps=args.steps)
    start = time.perf_counter()

    def told(step: int, loss: float, model: EmbeddedModel) -> None:
        if step % 50 == 0:
            sys.stderr.write(f"{step:5d}  {loss:.3f}  {time.perf_counter() - start:.0f} s\n")

    model, losses = train(recipe, told=told)
    seconds = time.perf_counter() - start
    save(model, args.out, tokenizer=WordTokenizer(), force=args.force)
    found = measured(model, recipe, losses, seconds)
    if args.sister:
        found["sisters"] = [sister(folder) for folder in args.sister]
    write(found, args.out)
    shown = {name: found[name] for name in ("loss", "abilities", "without", "pointing")}
    sys.stdout.write(json.dumps(shown, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
