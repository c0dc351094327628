"""Report attention that was not intercepted: an error if none was seen, a note if some was missed."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from multihead._base.plural import plural
from multihead.errors import MultiheadError

_WORDS = ("attention", "attn")
_SHOWN = 4


def unseen_note(unseen: Mapping[str, nn.Module], seen: int) -> str | None:
    """A note on attention that ran unseen, with the number of seen ones; None if all was seen."""
    if not unseen:
        return None
    names = [f"{path or 'the model'} ({type(module).__name__})" for path, module in unseen.items()]
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    kinds = dict.fromkeys(type(module).__name__ for module in unseen.values())
    adapters = ", ".join(f"@multihead.model.adapter({kind})" for kind in kinds)
    return (
        f"{len(unseen)} of {len(unseen) + seen} attentions are not seen: {', '.join(names[:_SHOWN])}{more}; "
        f"write an adapter: {adapters}"
    )


def nothing_found(model: nn.Module, runs: int) -> MultiheadError:
    """An error for a model whose attention is unseen: the modules that may compute it, and how to proceed."""
    name = type(model).__name__
    if runs == 0:
        return MultiheadError(
            f"{name} did not run inside the block",
            hint="call the same model object in the same thread: with mh.capture(model) as heads: model(**batch)",
        )
    kinds: dict[str, str] = {}
    for path, module in model.named_modules():
        if any(word in type(module).__name__.lower() for word in _WORDS):
            kinds.setdefault(type(module).__name__, path)
    modules = ", ".join(f"{kind} ({path or 'the model'})" for kind, path in kinds.items())
    return MultiheadError(
        f"{name} ran {plural(runs, 'time')} and no attention was seen: neither F.scaled_dot_product_attention, "
        "nn.MultiheadAttention, multihead's layer, Hugging Face's attention interface nor an adapter was called. "
        + (f"Modules named like attention: {modules}." if modules else "No module is named like attention."),
        hint="if a module computes attention itself, write an adapter: @multihead.model.adapter(ItsClass); "
        "a scripted or exported model cannot be captured: capture the original",
    )
