"""Draw what the heads of the embedded model have learned: the figures of docs/what-heads-learn.md.

    python examples/what_heads_learn.py [--out docs/images]

Needs matplotlib and nothing else: the model comes with the package.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import torch

import multihead as mh
from multihead.sources.embedded import FOLDER

TEXTS = {
    "previous": "<now> <town> the keys that the man near the doors sees are new .",
    "delimiter": "<past> <sea> the boats near his net sank . <now> <farm> my old dog follows the cats .",
    "induction": "Ana Lund says ( whale key fat Ben men ) . Ana Lund says [ whale key fat Ben men ] .",
    "agreement": "<now> <town> the key that the men near the doors see is new .",
}
"""What each kind of head is shown on."""


def chosen() -> dict[str, str]:
    """The clearest head of each kind, and the one that agreement needs."""
    card = json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))
    heads = {
        kind: max(
            (h for h, k in card["kinds"].items() if k["kind"] == kind), key=lambda h: card["kinds"][h]["score"]
        )
        for kind in ("previous", "induction", "delimiter")
    }
    return heads | {"agreement": card["pointing"]["head"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    model, tokenizer = mh.embedded()
    for what, head in chosen().items():
        ids = tokenizer(TEXTS[what])["input_ids"]
        with torch.no_grad(), mh.capture(model, keep="qk") as heads:
            model(torch.tensor([ids]))
        words = tokenizer.convert_ids_to_tokens(ids)
        drawn = mh.figure.attention(heads[head], words, title=f"{head}: {what}")
        drawn.savefig(args.out / f"embedded-{what}.png")
        print(f"{what}: {head} → {args.out / f'embedded-{what}.png'}")


if __name__ == "__main__":
    main()
