"""Change the outputs of heads between the kernel and W_O, before W_O mixes them.

- `ablate` replaces the output of heads by zero, by their mean, or by the output of uniform attention.
- `gate` multiplies the output of every head by a gate that has a gradient (Michel et al. 2019).
- `patch` copies the activations of heads from one run into another (activation patching).

All are context managers, can be nested in each other and in `capture`, and leave the model unchanged.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace as with_fields
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.arguments import check_instance
from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError, SizeError, TypeMismatchError
from multihead.layer import Groups, Problem, attend
from multihead.model.call import Call, Compute, Listener
from multihead.model.capture import Capture
from multihead.model.find_sites import find_sites
from multihead.model.intercept import intercept
from multihead.model.kernel_arguments import without_interception
from multihead.model.sites import Key, Site, Sites
from multihead.table.head_names import HeadName

Replacement = Literal["zero", "mean", "uniform"]
What = Literal["output", "q", "k", "v"]


def ablate(
    model: nn.Module,
    heads: Sequence[HeadName] | str,
    *,
    replace: Replacement = "zero",
    means: Capture | None = None,
    sites: Sites | None = None,
) -> AbstractContextManager[None]:
    """Ablate heads inside the block.

    Args:
        heads: names such as "L0H3", "0.3" or (0, 3).
        replace: the substitute for the output of the heads. "zero" is the output after pruning, "mean" their mean
            over the real tokens of the call or over all tokens of the capture `means`. "uniform" is the output of
            equal attention to all visible keys.
        means: a capture of the same model, for replace="mean".
        sites: the attentions of the model, from a capture of it: `heads.sites`. By default they are found by
            running the model once on a small example.

    Returns:
        A context manager that yields nothing.

    Raises:
        SizeError: if a head does not exist, or `replace` is unknown.
        MultiheadError: at the end of the block, if a layer of the heads did not run in it.

    >>> import torch, multihead as mh
    >>> model, tokenizer = mh.embedded()
    >>> ids = tokenizer("whale key fat men door new dog whale key fat men door new")["input_ids"]
    >>> (dog,) = tokenizer.convert_tokens_to_ids(["dog"])  # the next word, if the model copies
    >>> with torch.no_grad():
    ...     intact = model(torch.tensor([ids])).logits[0, -1].softmax(-1)[dog]
    ...     with mh.ablate(model, ["L0H0"]):
    ...         ablated = model(torch.tensor([ids])).logits[0, -1].softmax(-1)[dog]
    >>> bool(intact > 0.9), bool(ablated < 0.1)
    (True, True)
    """
    if replace not in ("zero", "mean", "uniform"):
        raise SizeError(f"replace must be zero, mean or uniform, got {replace!r}", hint='replace="zero" is pruning')
    if means is not None and replace != "mean":
        raise MultiheadError(f'means are for replace="mean", got replace={replace!r}', hint='replace="mean"')
    check_instance("means", means, Capture | None, "a capture or None", hint='replace="mean", means=heads')
    sites = find_sites(model) if sites is None else sites
    picked = sites.resolve_heads(heads)
    captured_means = {} if means is None else _means(means, picked)

    def listen(call: Call, run: Compute) -> HeadOutputs:
        """Replace the outputs of the ablated heads."""
        named = picked.get(call.key, [])
        out, local_heads = run(), call.here(named)
        if not local_heads:
            return out
        if replace == "zero":
            new = torch.zeros_like(out[:, local_heads])
        elif replace == "uniform":
            new = _attend_hidden(_uniform(_select_heads(call.problem, local_heads)))
        else:
            mean = captured_means.get(call.key)
            mean = _mean(call, out)[local_heads] if mean is None else mean[call.among(named)].to(out)
            new = mean[:, None].expand_as(out[:, local_heads])
        return _replace_heads(out, local_heads, new)

    return _changed(model, listen, picked, sites)


class Gates:
    """One gate per head, initially 1: `gates["L3"]` is the (head,) tensor of a layer, with its gradient."""

    def __init__(self, sites: Sites) -> None:
        self.sites = sites
        self._of: dict[Key, Tensor] = {}

    def of(self, call: Call, like: Tensor) -> Tensor:
        """The gates of the heads of an attention call, 1 at first."""
        key = call.key
        self.sites.register(call.site)
        if key not in self._of:
            self._of[key] = torch.ones(call.heads, dtype=torch.float32, device=like.device, requires_grad=True)
        return self._of[key]

    def here(self, call: Call, like: Tensor) -> Tensor:
        """The gates of the heads on this rank; gradients reach all ranks."""
        gates = self.of(call, like)
        return gates if call.head_shard is None else call.head_shard.local(gates)

    def __getitem__(self, layer: str | int) -> Float[Tensor, " head"]:
        label = f"L{layer}" if isinstance(layer, int) else layer
        for site in self._sites():
            if site.label == label:
                return self._of[site.key]
        raise SizeError(
            f"no gate for layer {label!r}; there are gates for {', '.join(self.labels) or 'no layer yet'}",
            hint="gates are created when the model first runs in the block",
        )

    @property
    def labels(self) -> list[str]:
        """The layers that have gates, as L0, L1, ..."""
        return [site.label for site in self._sites()]

    def parameters(self) -> list[Tensor]:
        """All gates, for an optimizer."""
        return list(self._of.values())

    def gradients(self) -> dict[str, float]:
        """{head: ∂loss/∂gate} after a backward pass; 0 for heads that the loss does not depend on."""
        gates = self.parameters()
        if gates and all(gate.grad is None for gate in gates):
            raise MultiheadError(
                "no gate has a gradient",
                hint="call loss.backward() first, without torch.no_grad(), on the same gates",
            )
        gradients: dict[str, float] = {}
        for site in self._sites():
            gradient = self._of[site.key].grad
            values = [0.0] * site.heads if gradient is None else gradient.tolist()
            gradients |= zip(site.names, values, strict=True)
        return gradients

    def _sites(self) -> list[Site]:
        return [self.sites[key] for key in self._of]


@contextmanager
def gate(
    model: nn.Module, values: Mapping[str, Tensor] | None = None, *, sites: Sites | None = None
) -> Generator[Gates]:
    """Multiply the output of every head by its gate inside the block; the gates have gradients.

    Args:
        values: initial gates, {"L3": (head,) tensor}; they are used as they are, not copied. Default: 1 for every
            head.
        sites: the attentions of the model, from a capture of it; by default found as the model runs.

    Returns:
        A context manager that yields `Gates`: `gates["L0"]` is the tensor of a layer, `gates.gradients()` a value
        per head.

    Raises:
        SizeError: if a layer of `values` does not exist, or its tensor does not have a value per head.
        TypeMismatchError: if a value is not a tensor.

    >>> import torch, multihead as mh
    >>> model, tokenizer = mh.embedded()
    >>> ids = torch.tensor([tokenizer("the keys that the man sees are new .")["input_ids"]])
    >>> with mh.gate(model) as gates:
    ...     model(ids).logits.logsumexp(-1).sum().backward()
    >>> gates["L0"].grad.shape, len(gates.gradients())  # of 4 heads in a layer, 12 in all
    (torch.Size([4]), 12)
    """
    check_instance("values", values, Mapping | None, "a dict of layers and gates", hint='{"L3": torch.ones(heads)}')
    if sites is None:
        sites = find_sites(model) if values else Sites()
    gates = Gates(sites)
    if values:
        by_label = {site.label: site for site in sites}
        for label, value in values.items():
            if not isinstance(value, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]  # users pass anything
                raise TypeMismatchError(
                    f"the gate of {label!r} must be a tensor, got {value!r}",
                    hint="torch.ones(heads) changes nothing",
                )
            if label not in by_label or value.shape != (by_label[label].heads,):
                heads_of_layers = {name: site.heads for name, site in by_label.items()}
                raise SizeError(
                    f"gates must be {{layer: (head,) tensor}}, got shape {tuple(value.shape)} for {label!r}",
                    hint=f"layers and their number of heads: {heads_of_layers}",
                )
            gates._of[by_label[label].key] = value  # pyright: ignore[reportPrivateUsage]  # same file

    def listen(call: Call, run: Compute) -> HeadOutputs:
        out = run()
        return out * gates.here(call, out).to(out)[:, None, None]

    with intercept(model, listen, sharded=True):
        yield gates


def patch(
    model: nn.Module,
    source: Capture,
    heads: Sequence[HeadName] | str,
    *,
    what: What = "output",
    rows: Sequence[int] | int | None = None,
    call: int = -1,
    sites: Sites | None = None,
) -> AbstractContextManager[None]:
    """Copy the activations of heads from `source`, a capture of a different run, inside the block.

    In grouped attention keys and values are shared: only the named heads read the patched ones.

    Args:
        source: a capture with keep="outputs" for the output, or keep="qk v" for q, k and v.
        heads: names such as "L0H3", "0.3" or (0, 3).
        what: the tensor to copy: "output", or "q", "k" or "v", from which the output of the head is recomputed.
        rows: the tokens to patch: queries for output and q, keys for k and v; by default all.
        call: the call of the source to copy from; by default the latest.
        sites: the attentions of the model; by default those of the source.

    Returns:
        A context manager that yields nothing.

    Raises:
        SizeError: if a head does not exist, or the runs differ in shape.
        MultiheadError: if the source did not keep the tensor, or, at the end of the block, if a layer did not run.

    >>> import torch, multihead as mh
    >>> model, tokenizer = mh.embedded()
    >>> texts = (f"<now> <town> the {noun} near the door" for noun in ("key", "keys"))
    >>> one, many = (torch.tensor([tokenizer(text)["input_ids"]]) for text in texts)
    >>> verbs = tokenizer.convert_tokens_to_ids(["is", "are"])
    >>> with torch.no_grad():
    ...     with mh.capture(model, keep="outputs") as source:
    ...         _ = model(one)
    ...     intact = model(many).logits[0, -1, verbs].argmax()
    ...     with mh.patch(model, source, ["L1H3"]):  # the head that carries the number of the noun
    ...         patched = model(many).logits[0, -1, verbs].argmax()
    >>> int(intact), int(patched)  # are, is
    (1, 0)
    """
    if what not in ("output", "q", "k", "v"):
        raise SizeError(f"what must be output, q, k or v, got {what!r}", hint='what="output"')
    hint = 'with mh.capture(model, keep="outputs") as source: model(...)'
    check_instance("source", source, Capture, "a capture", hint=hint)
    sites = source.sites if sites is None else sites
    picked, rows = sites.resolve_heads(heads), [rows] if isinstance(rows, int) else rows
    stored = {key: _stored(source, key, named, what, call) for key, named in picked.items()}

    def listen(this_call: Call, run: Compute) -> HeadOutputs:
        """Put the stored activations in place of the patched heads'."""
        out, key = run(), this_call.key
        local_heads, new = this_call.here(picked.get(key, [])), stored.get(key)
        if not local_heads or new is None:
            return out
        if what == "output":
            return _replace_heads(out, local_heads, _replace_rows(out[:, local_heads], new, rows, this_call.path))
        problem = _select_heads(this_call.problem, local_heads)
        old = {"q": problem.q, "k": problem.k, "v": problem.v}[what]
        new = _replace_rows(old, new, rows, this_call.path)
        return _replace_heads(out, local_heads, _attend_hidden(with_fields(problem, **{what: new})))

    return _changed(model, listen, picked, sites)


@contextmanager
def _changed(
    model: nn.Module, listener: Listener, heads: Mapping[Key, Sequence[int]], sites: Sites
) -> Generator[None]:
    """Intervene in every attention call by the listener. Raises if one of the named heads never ran."""
    ran: set[Key] = set()

    def listen(call: Call, run: Compute) -> HeadOutputs:
        ran.add(call.key)
        return listener(call, run)

    with intercept(model, listen, sharded=True):
        yield
    missing = [key for key in heads if key not in ran]
    if missing:
        names = [sites[key].name(head) for key in missing for head in heads[key]]
        raise MultiheadError(
            f"{', '.join(names)} did not run inside the block, so nothing was changed",
            hint="call the model inside the block, on inputs that reach this layer",
        )


def _attend_hidden(problem: Problem) -> HeadOutputs:
    """Attention hidden from enclosing blocks, which must see the layer attend only once."""
    with without_interception():
        return attend(problem)


def _replace_heads(out: HeadOutputs, heads: Sequence[int], new: Tensor) -> HeadOutputs:
    """`out` with some heads replaced; gradients flow into both."""
    index = torch.tensor(list(heads), device=out.device)
    return out.index_copy(1, index, new.to(out.dtype))


def _select_heads(problem: Problem, heads: Sequence[int]) -> Problem:
    """The attention of the heads to intervene in, each with its own copy of keys and values."""
    kv = [problem.groups.kv_of_head[h] for h in heads]
    sinks = problem.scores.sinks
    scores = with_fields(problem.scores, sinks=None if sinks is None else sinks[list(heads)])
    return with_fields(
        problem,
        q=problem.q[:, list(heads)],
        k=problem.k[:, kv],
        v=problem.v[:, kv],
        groups=Groups.even(len(kv), len(kv)),
        coordinates=problem.coordinates.of_heads(heads),
        scores=scores,
    )


def _uniform(problem: Problem) -> Problem:
    """The same attention with equal weights for all visible keys: all scores are 0, without bias or sinks."""
    scores = with_fields(problem.scores, softcap=None, sinks=None, dropout=0.0)
    return with_fields(problem, q=torch.zeros_like(problem.q), mask=problem.mask.without_bias(), scores=scores)


def _mean(call: Call, out: HeadOutputs) -> Float[Tensor, "head value_dim"]:
    """The mean output of each head over the real tokens of a call, for ablation by means."""
    valid = call.queries.valid
    if valid is None:
        return out.mean((0, 2))
    weight = valid.to(out)[:, None, :, None]
    return (out * weight).sum((0, 2)) / weight.sum().clamp_min(1.0)


def _means(means: Capture, picked: Mapping[Key, Sequence[int]]) -> dict[Key, Tensor]:
    """Mean outputs to ablate heads by, from a capture."""
    sites = {site.key: site for site in means.sites}
    missing = next((key for key in picked if key not in sites), None)
    if missing is not None:
        raise MultiheadError(
            f"the capture passed as means has no layer {missing[0]}", hint="capture a run of the same model"
        )
    return {key: means.statistics(sites[key]).outputs.mean()[list(heads)] for key, heads in picked.items()}


def _stored(source: Capture, key: Key, heads: Sequence[int], what: What, call: int) -> Tensor | None:
    """The stored activations of the named heads; None if all of them are on other ranks."""
    site = next((s for s in source.sites if s.key == key), None)
    if site is None:
        raise MultiheadError(f"the source has no layer {key[0]}", hint="capture a run of the same model")
    method = {"output": "output", "q": "query", "k": "key", "v": "value"}[what]
    heads = [h for h in heads if source.here(site, [h])]
    if not heads:
        return None
    return torch.stack([getattr(source[_name(site, h)], method)(call) for h in heads], dim=1)


def _name(site: Site, head: int) -> HeadName:
    number = site.numbers[head]
    return (site.stack, site.layer, number) if site.stack else (site.layer, number)


def _replace_rows(old: Tensor, new: Tensor, rows: Sequence[int] | None, path: str) -> Tensor:
    """Rows of a patch of head outputs: `new` in the chosen rows, `old` elsewhere."""
    if old.shape != new.shape:
        raise SizeError(
            f"{path}: the source must have the shape of this run, {tuple(old.shape)}, got {tuple(new.shape)}",
            hint="run both on the same batch size and number of tokens",
        )
    new = new.to(old)
    if rows is None:
        return new
    wrong = next((r for r in rows if not -old.shape[2] <= r < old.shape[2]), None)
    if wrong is not None:
        raise SizeError(f"{path} has {old.shape[2]} rows, got row {wrong}", hint="rows count from 0")
    index = torch.tensor([r % old.shape[2] for r in rows], dtype=torch.long, device=old.device)
    return old.index_copy(2, index, new.index_select(2, index))
