"""Train a small language model and watch an induction head form: about five seconds on one core.

A line of the training text is a random string, then the same string again: "k d w a k d w a ...". Its first half is
pure chance. Its second half can be predicted by a pair of heads (Olsson et al. 2022): a previous-token head in the
first layer writes "the token before me was k" at every position, and an induction head in the second layer looks
for the position whose previous token is the present one. What stands there comes next.

    python examples/train_tiny.py [--steps 450] [--seed 0]
"""

from __future__ import annotations

import argparse
import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multihead as mh
from multihead import mask, position

WORDS, WIDTH, HEADS, LENGTH = 24, 48, 2, 32
BATCH = 48


class Tiny(nn.Module):
    """Two layers of attention and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        # Rotary positions: without a sense of distance, no head could find the previous token.
        self.layers = nn.ModuleList(
            mh.MultiHeadAttention(WIDTH, HEADS, position=position.Rotary(100.0, dim=8)) for _ in range(2)
        )
        self.guess = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.words(ids)
        for attention in self.layers:
            x = x + attention(x, mask=mask.causal())
        return self.guess(x)


def repeated(rows: int, drawn: torch.Generator) -> tuple[Tensor, Tensor]:
    """Token ids of random strings that repeat, and which of them can be predicted."""
    period = torch.randint(LENGTH // 4, LENGTH // 2 + 1, (rows, 1), generator=drawn)
    strings = torch.randint(0, WORDS, (rows, LENGTH), generator=drawn)
    place = torch.arange(LENGTH)
    return strings.gather(1, place % period), (place > period)[:, 1:]


def watch(model: Tiny, drawn: torch.Generator) -> dict[str, float]:
    """The clearest heads on new text, and the loss on tokens that can be predicted and that cannot."""
    ids, known = repeated(64, drawn)
    with torch.no_grad(), mh.capture(model) as heads:
        logits = model(ids)
    losses = F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten(), reduction="none").view(known.shape)
    return {
        "previous": max(heads[0, h].mean("previous") for h in range(HEADS)),
        "induction": max(heads[1, h].mean("induction") for h in range(HEADS)),
        "new": float(losses[~known].mean()),
        "repeated": float(losses[known].mean()),
    }


def train(steps: int, seed: int = 0, every: int = 50) -> list[dict[str, float]]:
    """Train, print a line every few steps, and return what was printed."""
    torch.manual_seed(seed)
    drawn = torch.Generator().manual_seed(seed)
    model, history = Tiny(), []
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    print("step  L0 previous  L1 induction  loss, new  loss, repeated")
    for step in range(steps + 1):
        if step % every == 0:
            history.append({"step": step} | watch(model, drawn))
            print("{step:4.0f}{previous:13.2f}{induction:14.2f}{new:11.2f}{repeated:16.2f}".format(**history[-1]))
        ids, _ = repeated(BATCH, drawn)
        loss = F.cross_entropy(model(ids)[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return history


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=450)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    last = train(args.steps, args.seed)[-1]
    print(
        f"by chance the loss would be log {WORDS} = {math.log(WORDS):.2f}; repeated tokens: {last['repeated']:.2f}"
    )


if __name__ == "__main__":
    main()
