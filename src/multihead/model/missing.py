"""What to say when a model ran and no attention passed."""

from __future__ import annotations

from torch import nn

from multihead.errors import MultiheadError

_WORDS = ("attention", "attn")


def nothing_found(model: nn.Module, runs: int) -> MultiheadError:
    """The error that lists what was looked at, and how to go on."""
    name = type(model).__name__
    if runs == 0:
        return MultiheadError(
            f"{name} did not run inside the block",
            hint="with mh.capture(model) as heads: model(**batch), with the same object and in the same thread",
        )
    kinds: dict[str, str] = {}
    for path, module in model.named_modules():
        if any(word in type(module).__name__.lower() for word in _WORDS):
            kinds.setdefault(type(module).__name__, path)
    looked = ", ".join(f"{kind} ({path or 'the model'})" for kind, path in kinds.items())
    return MultiheadError(
        f"{name} ran {runs} times and no attention was seen: neither F.scaled_dot_product_attention, "
        "nn.MultiheadAttention, multihead's layer, Hugging Face's attention interface nor an adapter was called. "
        + (f"Modules that sound like attention: {looked}." if looked else "No module sounds like attention."),
        hint="if a module computes attention by hand, teach it with @mh.adapter(ItsClass): ten lines, docs/see.md; "
        "a scripted or exported model shows nothing: capture the one it was made from",
    )
