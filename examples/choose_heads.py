"""How many heads of a layer of fixed width do best? A task that can be counted.

There are some tokens, each with a name and a value, and a question that holds several names at once. One attention
layer of width 32 must return the value of each name. A head makes one mixture of the tokens, so one head cannot
answer several questions at once. A head with few dimensions cannot tell many names apart, and each of h heads has
32/h of them. To choose for your own task, replace `batch` and `Lookup`.

    python examples/choose_heads.py [--seeds 2] [--steps 1200] [--json results.json]
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import multihead as mh

WIDTH, NAMES, VALUES, ASKED = 32, 24, 8, 4
HEADS = (1, 2, 4, 8, 16, 32)
BATCH = 96


class Lookup(nn.Module):
    """Names and values become vectors, the question looks at them, a linear layer reads the answers."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.name, self.value = nn.Embedding(NAMES, WIDTH), nn.Embedding(VALUES, WIDTH)
        self.wanted = nn.Embedding(ASKED * NAMES, WIDTH)
        self.attention = mh.MultiHeadAttention(WIDTH, heads)
        self.answer = nn.Linear(WIDTH, ASKED * VALUES)

    def forward(self, names: Tensor, values: Tensor, asked: Tensor) -> Tensor:
        tokens = self.name(names) + self.value(values)
        slots = torch.arange(ASKED) * NAMES
        question = self.wanted(asked + slots).sum(1, keepdim=True)
        return self.answer(self.attention(question, tokens)).unflatten(-1, (ASKED, VALUES))[:, 0]


def batch(drawn: torch.Generator, rows: int = BATCH) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Names in a random order with random values, names that are asked for, and their values."""
    names = torch.rand(rows, NAMES, generator=drawn).argsort(-1)
    values = torch.randint(0, VALUES, (rows, NAMES), generator=drawn)
    asked = torch.rand(rows, NAMES, generator=drawn).argsort(-1)[:, :ASKED]
    where = names.argsort(-1).gather(1, asked)
    return names, values, asked, values.gather(1, where)


def accuracy(heads: int, seed: int, steps: int) -> float:
    """The share of right answers on new rows after training; by chance it is 1/8."""
    torch.manual_seed(seed)
    drawn = torch.Generator().manual_seed(seed)
    model = Lookup(heads)
    optimizer = torch.optim.Adam(model.parameters(), lr=8e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        *given, right = batch(drawn)
        loss = F.cross_entropy(model(*given).flatten(0, 1), right.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        *given, right = batch(torch.Generator().manual_seed(1_000_003), 4096)
        return float((model(*given).argmax(-1) == right).float().mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--steps", type=int, default=1200)
    parser.add_argument("--heads", type=int, nargs="*", default=HEADS)
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    args = parser.parse_args()
    task = {"width": WIDTH, "names": NAMES, "values": VALUES, "asked": ASKED, "steps": args.steps}
    scores: dict[int, list[float]] = {}
    print("heads  numbers per head  right answers")
    for heads in args.heads:
        scores[heads] = [accuracy(heads, seed, args.steps) for seed in range(args.seeds)]
        print(f"{heads:5d}  {WIDTH // heads:16d}  " + "  ".join(f"{x:.3f}" for x in scores[heads]), flush=True)
    if args.json is not None:
        args.json.write_text(json.dumps({"task": task, "accuracy": scores}, indent=1) + "\n")


if __name__ == "__main__":
    main()
