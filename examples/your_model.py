"""Capture, ablate and patch the heads of a model. Replace `mh.embedded()` by your own model and tokenizer.

Any PyTorch model works that calls torch's attention function, `nn.MultiheadAttention` or an attention of Hugging
Face transformers. For attention written by hand, docs/see.md shows a ten-line adapter.

    python examples/your_model.py
"""

from __future__ import annotations

import torch

import multihead as mh


def main() -> dict[str, float]:
    model, tokenizer = mh.embedded()  # yours: any nn.Module in eval mode

    def ids(text: str) -> torch.Tensor:
        return torch.tensor([tokenizer(text)["input_ids"]])

    one, many = (ids(f"<now> <town> the {word} that the men near the doors see") for word in ("key", "keys"))
    singular, plural = tokenizer.convert_tokens_to_ids(["is", "are"])

    def prefers_singular(text: torch.Tensor) -> float:
        """How much more probable "is" is than "are" as the next word: a log ratio."""
        logits = model(text).logits[0, -1]
        return float(logits[singular] - logits[plural])

    with torch.no_grad():
        # Capture: statistics of every head, and queries and keys for the maps.
        with mh.capture(model, keep="qk outputs") as seen:
            result = {"intact": prefers_singular(one)}
        subject = seen["L1H3"].weights(rows=[-1])[0, 0, 4]  # the weight of the last word on "key"
        print(seen)
        print(f"L1H3 looks from the last word at the subject with {subject:.2f}, "
              f"entropy over all words {seen['L1H3'].mean('entropy'):.2f}")  # fmt: skip

        # Ablate: silence a head and see what the model loses.
        with mh.ablate(model, ["L1H3"], sites=seen.sites):
            result["without L1H3"] = prefers_singular(one)

        # Patch: run the plural sentence, with the head's output copied from the singular one.
        result["plural"] = prefers_singular(many)
        with mh.patch(model, seen, ["L1H3"], rows=[-1]):
            result["plural, L1H3 of the singular"] = prefers_singular(many)

    print('\nlog p("is") − log p("are") after "the key(s) that the men near the doors see"')
    for name, value in result.items():
        print(f"  {name:<30} {value:6.2f}")
    return result


if __name__ == "__main__":
    main()
