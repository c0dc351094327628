"""Attention that was not intercepted: the error if there was none, and a note for some."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from multihead.errors import MultiheadError

_WORDS = ("attention", "attn")


def nothing_found(model: nn.Module, runs: int) -> MultiheadError:
    """An error that lists the modules that may compute attention, and how to proceed."""
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
        f"{name} ran {runs} times and no attention was seen: neither F.scaled_dot_product_attention, "
        "nn.MultiheadAttention, multihead's layer, Hugging Face's attention interface nor an adapter was called. "
        + (f"Modules named like attention: {modules}." if modules else "No module is named like attention."),
        hint="if a module computes attention itself, write an adapter: @mh.adapter(ItsClass); "
        "a scripted or exported model cannot be captured: capture the original",
    )


def unseen_attentions(model: nn.Module, seen: Sequence[str]) -> list[str]:
    """A note that names the modules that look like attention and were not seen; none if all were."""
    paths: list[tuple[str, str]] = []
    for path, module in model.named_modules():
        kind, name = type(module).__name__, path.rpartition(".")[2]
        if not path or not (any(word in kind.lower() for word in _WORDS) or name.endswith(_WORDS)):
            continue
        if not any(p.dim() > 1 for p in module.parameters()):  # a norm or dropout of attention
            continue
        others = [*seen, *(other for other, _ in paths)]
        if not any(f"{path}.".startswith(f"{other}.") or f"{other}.".startswith(f"{path}.") for other in others):
            paths.append((path, kind))
    if not paths:
        return []
    kinds: dict[str, list[str]] = {}
    for path, kind in paths:
        kinds.setdefault(kind, []).append(path)
    names = "; ".join(
        f"{len(of_kind)} {kind} ({', '.join(of_kind[:3])}{', …' if len(of_kind) > 3 else ''})"
        for kind, of_kind in kinds.items()
    )
    return [f"{len(paths)} of {len(paths) + len(set(seen))} attentions are not seen: {names}"]
