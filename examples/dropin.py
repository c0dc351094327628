"""Replace the attention of an existing torch model, without changing its weights.

`dropin.replace_all` puts our class in the place of every `nn.MultiheadAttention`. It has the same signature, the
same state dict and the same result. Where torch's own class returns NaN, ours returns zeros.

    python examples/dropin.py
"""

from __future__ import annotations

import torch
from torch import nn

import multihead as mh
from multihead.layer import dropin


def main() -> None:
    torch.manual_seed(0)
    block = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    theirs = nn.TransformerEncoder(block, 2, enable_nested_tensor=False).eval()
    x = torch.randn(2, 10, 64)
    padding = torch.zeros(2, 10, dtype=torch.bool)
    padding[1, 6:] = True  # True hides a key, as everywhere in torch.nn
    before, state = theirs(x, src_key_padding_mask=padding), theirs.state_dict()

    replaced = dropin.replace_all(theirs)
    after = theirs(x, src_key_padding_mask=padding)
    torch.testing.assert_close(after[~padding], before[~padding])
    assert state.keys() == theirs.state_dict().keys()
    print(f"replaced {replaced} attention layers; outputs and state dict are the same")

    with torch.no_grad(), mh.capture(theirs) as heads:
        theirs(x)
    print(heads)

    # A row that may look at nothing: torch returns NaN together with the weights, our class returns zeros.
    nothing = torch.ones(1, 3, dtype=torch.bool)
    for name, kind in (("torch", nn.MultiheadAttention), ("ours", dropin.MultiheadAttention)):
        torch.manual_seed(0)
        attention = kind(8, 2, bias=False, batch_first=True)
        out, _ = attention(x[:1, :3, :8], x[:1, :3, :8], x[:1, :3, :8], key_padding_mask=nothing)
        print(f"{name}, all keys hidden: {out[0, 0, :3].tolist()} …")


if __name__ == "__main__":
    main()
