"""Capture, ablate and patch the heads of a model. Replace `mh.embedded()` by your own model and tokenizer.

Any PyTorch model works that calls torch's attention function, `nn.MultiheadAttention` or an attention of Hugging
Face transformers. For attention written by hand, docs/guides/your-own-model.md shows a ten-line adapter.

    python examples/your_model.py
"""

from __future__ import annotations

import torch

import multihead as mh


def main() -> dict[str, float]:
    model, tokenizer = mh.embedded()  # yours: any nn.Module in eval mode

    def ids(text: str) -> torch.Tensor:
        return torch.tensor([tokenizer(text)["input_ids"]])

    singular, plural = (ids(f"<now> <town> the {noun} that the men near the doors see") for noun in ("key", "keys"))
    is_, are = tokenizer.convert_tokens_to_ids(["is", "are"])

    def prefers_plural(text: torch.Tensor) -> float:
        """How much more probable "are" is than "is" as the next word: a log ratio."""
        logits = model(text).logits[0, -1]
        return float(logits[are] - logits[is_])

    with torch.no_grad():
        # Capture: statistics of every head, queries and keys for the maps, and the outputs of the heads.
        with mh.capture(model, keep="qk outputs") as seen:
            result = {"keys": prefers_plural(plural)}
        print(seen)
        subject = seen["L1H3"].weights(rows=[-1])[0, 0, 4]  # from the last word to "keys"
        print(f"L1H3: weight {subject:.2f} on the subject, mean entropy {seen['L1H3'].mean('entropy'):.2f}")

        # Ablate: silence a head, and see what the model loses. `sites` saves a search for its attention layers.
        with mh.ablate(model, ["L1H3"], sites=seen.sites):
            result["keys, without L1H3"] = prefers_plural(plural)

        # Patch: run the other sentence, with the output of this head copied from the first run.
        result["key"] = prefers_plural(singular)
        with mh.patch(model, seen, ["L1H3"], rows=[-1]):
            result["key, L1H3 copied from keys"] = prefers_plural(singular)

    print('\nlog p("are") − log p("is") after "the … that the men near the doors see"')
    for name, value in result.items():
        print(f"  {name:<28} {value:6.2f}")
    return result


if __name__ == "__main__":
    main()
