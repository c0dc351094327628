"""Compute the first attention layer of a trained model by hand, head by head, and compare with the model.

Prints, for every word, the output of each of the four heads, their concatenation, and the result of W_O.
docs/learn/1-attention-by-hand.md explains each step with a smaller example.

    python examples/attention_by_hand.py [--text "the dog sees the cats"]
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor

import multihead as mh

SHOWN = 4
"""Numbers that are printed of each vector."""


def show(name: str, vector: Tensor) -> None:
    numbers = " ".join(f"{value:6.2f}" for value in vector[:SHOWN].tolist())
    print(f"    {name:<14} {numbers} … ({len(vector)} numbers)")


@torch.no_grad()
def main(text: str) -> None:
    model, tokenizer = mh.embedded()
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    words = tokenizer.convert_ids_to_tokens(ids[0].tolist())

    # What the model does: q and k as its kernel sees them (after rotary positions), the values, and the outputs.
    with mh.capture(model, keep="qk v outputs") as captured:
        model(ids)
    weights = mh.anatomy(model)[0]
    layer_input = model.layers[0].attention_norm(model.words(ids))

    outputs = []
    for head in range(weights.num_heads):
        seen = captured[0, head]
        q, k = seen.query()[0], seen.key()[0]
        v = layer_input[0] @ weights.W_V[head].T + weights.b_V[head]
        scores = q @ k.T / q.shape[-1] ** 0.5
        later = torch.ones_like(scores).triu(1).bool()
        attention_map = scores.masked_fill(later, float("-inf")).softmax(-1)
        outputs.append(attention_map @ v)
        torch.testing.assert_close(attention_map, seen.weights()[0])
        torch.testing.assert_close(outputs[-1], seen.output()[0])

    side_by_side = torch.cat(outputs, -1)  # the concatenation
    out = side_by_side @ torch.cat(list(weights.W_O), -1).T + weights.b_O
    torch.testing.assert_close(out, model.layers[0].attention(layer_input, mask=mh.mask.causal())[0])

    print(f"layer 0: {weights.num_heads} heads; the first {SHOWN} numbers of each vector")
    for place, word in enumerate(words):
        print(word)
        for head, output in enumerate(outputs):
            show(f"head {head}", output[place])
        show("concatenated", side_by_side[place])
        show("after W_O", out[place])
    print("maps, outputs of heads and the output of the layer are those of the model")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--text", default="the dog sees the cats", help="words of docs/reference/embedded.md")
    main(parser.parse_args().text)
