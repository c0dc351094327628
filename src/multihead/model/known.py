"""The attentions that a model was seen to have: learned as it runs, kept as long as the model lives."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import nn

from multihead._base.arguments import check_model
from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.model.call import Call, Compute
from multihead.model.example_inputs import example_inputs
from multihead.model.intercept import inner, intercept, isolated
from multihead.model.sites import Key, Site, find, name_sites
from multihead.table.head_names import HeadName

_Seen = dict[Key, tuple[int, bool]]
_seen: WeakKeyDictionary[nn.Module, _Seen] = WeakKeyDictionary()


def note(model: nn.Module, call: Call) -> None:
    """Remember that the model has this attention."""
    remember(model, call.key, call.heads, call.cross)


def remember(model: nn.Module, key: Key, heads: int, cross: bool) -> None:
    """Remember an attention by its place."""
    _seen.setdefault(inner(model), {})[key] = (heads, cross)


def changed(model: nn.Module, path: str, heads: int) -> None:
    """The attention at this path has another number of heads from now on; with none, it is one no more."""
    seen = _seen.get(inner(model), {})
    for key in [key for key in seen if key[0] == path]:
        cross = seen[key][1]
        if heads:
            seen[key] = (heads, cross)
        else:
            del seen[key]


def seen_sites(model: nn.Module) -> dict[Key, Site]:
    """The attentions that were seen so far, in the order of the run."""
    return name_sites(_seen.get(inner(model), {}))


def sites_of(model: nn.Module, inputs: dict[str, Any] | None = None) -> dict[Key, Site]:
    """All attentions of a model: those it was seen to have, else found by running it on a small example."""
    check_model(model)
    known = seen_sites(model)
    if known and inputs is None:
        return known

    def listen(call: Call, run: Compute) -> HeadOutputs:
        note(model, call)
        return run()

    given = example_inputs(inner(model)) if inputs is None else inputs
    with (
        torch.random.fork_rng(devices=[]),
        torch.no_grad(),
        isolated(),
        _still(model),
        intercept(model, listen, spread=True),
    ):
        try:
            model(**given)
        except MultiheadError:
            raise
        except Exception as wrong:
            shapes = {n: tuple(x.shape) for n, x in given.items() if isinstance(x, torch.Tensor)}
            raise MultiheadError(
                f"{type(inner(model)).__name__} did not run on the input that was guessed for it, "
                f"{shapes}: {wrong}",
                hint="run the model once under mh.capture(model): its heads are then known",
            ) from wrong
    return seen_sites(model)


@contextmanager
def _still(model: nn.Module) -> Generator[None]:
    """Without dropout, and with running averages that do not run."""
    training = [m for m in model.modules() if m.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True


def chosen(model: nn.Module, names: Iterable[HeadName] | str) -> dict[Key, list[int]]:
    """{attention: its heads} of the named ones; every name must be there."""
    sites = sites_of(model)
    heads: dict[Key, list[int]] = {}
    for name in [names] if isinstance(names, str) else names:
        site, head = find(name, sites.values())
        heads.setdefault(site.key, []).append(head)
    return heads
