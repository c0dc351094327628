"""Heads of a model that is spread over ranks have the numbers that they have in one process."""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import multihead as mh
from multihead import mask, position
from multihead.parallel import tensor_parallel_plan

from .common import layer, refused

WIDTH = 24


class Model(nn.Module):
    """Two layers of ours, with different numbers of heads, as after a cut."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.embed = nn.Embedding(31, WIDTH)
        first = layer(WIDTH, 5, head_dim=6, position=position.ALiBi(5))
        second = layer(WIDTH, 6, num_kv_heads=2, position=position.Rotary(), head_dim=4)
        self.layers = nn.ModuleList([first, second])

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        for part in self.layers:
            x = x + part(x, mask=mask.causal())
        return x


class Torch(nn.Module):
    """A layer of plain Linears on torch's kernel, as in models of others: heads by `view`."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.embed = nn.Embedding(31, WIDTH)
        self.layers = nn.ModuleList([Attention(), Attention()])

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.embed(input_ids)
        for part in self.layers:
            x = x + part(x)
        return x


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.wq, self.wo = nn.Linear(WIDTH, 12 * 4), nn.Linear(12 * 4, WIDTH)
        self.wk, self.wv = nn.Linear(WIDTH, 12 * 4), nn.Linear(WIDTH, 12 * 4)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (w(x).unflatten(-1, (-1, 4)).transpose(1, 2) for w in (self.wq, self.wk, self.wv))
        heads = nn.functional.scaled_dot_product_attention(3.0 * q, k, v, is_causal=True)
        return self.wo(heads.transpose(1, 2).flatten(2))


def models(mesh: DeviceMesh) -> list[tuple[nn.Module, nn.Module]]:
    """(whole, spread over ranks)"""
    ours, other = Model(), Torch()
    made = [(ours, parallelize_module(copy.deepcopy(ours), mesh, tensor_parallel_plan(ours)))]
    plan: dict[str, Any] = {f"layers.*.{name}": ColwiseParallel() for name in ("wq", "wk", "wv")}
    split = parallelize_module(copy.deepcopy(other), mesh, plan | {"layers.*.wo": RowwiseParallel()})
    return [*made, (other, split)]


def ids() -> Tensor:
    return torch.randint(31, (2, 13), generator=torch.Generator().manual_seed(2))


def measured_as_one(mesh: DeviceMesh) -> None:
    """Every rank has the whole table, under the names of one process."""
    data = [row.tolist() for row in ids()]
    for whole, spread in models(mesh):
        want, table = mh.measure(whole, data), mh.measure(spread, data)
        assert table.heads == want.heads, (table.heads, want.heads)
        for column in want.columns:
            torch.testing.assert_close(
                table.numbers(column), want.numbers(column), equal_nan=True, msg=lambda t, c=column: f"{c}: {t}"
            )
        with torch.no_grad(), mh.capture(spread) as heads:
            spread(ids())
            if mesh.size() > 1:
                with refused("not gathered yet", "of"):
                    heads["L1H2"].mean("entropy")
        with torch.no_grad(), mh.capture(whole) as expected:
            whole(ids())
        for a, b in zip(heads, expected, strict=True):
            assert a.name == b.name
            assert abs(a.mean("entropy") - b.mean("entropy")) < 1e-12, a.name
            assert torch.equal(a.statistics.histogram("entropy")[1], b.statistics.histogram("entropy")[1])
        assert heads.tokens == expected.tokens


def gathered_without_pickle(mesh: DeviceMesh) -> None:
    """Statistics of other ranks are numbers: reading a pickle could run code."""
    watching = True
    classes: list[Any] = []

    def watch(event: str, arguments: Any) -> None:  # stays for the life of the process
        if watching and event == "pickle.find_class":
            classes.append(arguments)

    sys.addaudithook(watch)
    for _, spread in models(mesh):
        with torch.no_grad(), mh.capture(spread) as heads:
            spread(ids())
        assert heads["L1H2"].mean("entropy") > 0
    watching = False
    assert classes == [], classes


def kept_by_global_number(mesh: DeviceMesh) -> None:
    """What is kept of a head is on the rank that has it; others say so."""
    for whole, spread in models(mesh):
        with torch.no_grad(), mh.capture(spread, keep="qk v outputs") as heads:
            spread(ids())
        with torch.no_grad(), mh.capture(whole, keep="qk v outputs") as expected:
            whole(ids())
        found = 0
        for a, b in zip(heads, expected, strict=True):
            if heads.here(a.site, [a.index]):
                found += 1
                torch.testing.assert_close(a.weights(), b.weights())
                for read in ("output", "query", "key", "value"):
                    torch.testing.assert_close(getattr(a, read)(), getattr(b, read)())
            else:
                with refused(f"{a.name} is on a different rank"):
                    a.weights()
        assert 0 < found <= -(-len(heads) // mesh.size()) + 2


def silenced_by_global_number(mesh: DeviceMesh) -> None:
    names = ["L0H3", "L1H0", "L1H4"]
    for whole, spread in models(mesh):
        with torch.no_grad(), mh.capture(whole) as expected:
            plain = whole(ids())
        with torch.no_grad(), mh.capture(spread) as heads:
            spread(ids())
        for how in ("zero", "mean", "uniform"):
            for means in (None, "seen") if how == "mean" else (None,):
                a = None if means is None else heads
                b = None if means is None else expected
                with torch.no_grad(), mh.ablate(spread, names, replace=how, means=a):
                    out = spread(ids())
                with torch.no_grad(), mh.ablate(whole, names, replace=how, means=b):
                    want = whole(ids())
                torch.testing.assert_close(out, want, msg=lambda t, how=how: f"{how}: {t}")
                assert (want - plain).abs().max() > 1e-3
        with refused("got head 12" if isinstance(whole, Torch) else "got head 5"):
            mh.ablate(spread, ["L0H12" if isinstance(whole, Torch) else "L0H5"])


def gated_by_global_number(mesh: DeviceMesh) -> None:
    for whole, spread in models(mesh):
        for model in (whole, spread):
            model.requires_grad_(False)
        found: list[dict[str, float]] = []
        for model in (spread, whole):
            with mh.gate(model) as gates:
                model(ids()).square().sum().backward()
            found.append(gates.gradients())
        assert found[0].keys() == found[1].keys()
        for name, value in found[1].items():
            assert abs(found[0][name] - value) <= 1e-4 * max(1.0, abs(value)), (name, found[0][name], value)


def patched_by_global_number(mesh: DeviceMesh) -> None:
    names = ["L0H4", "L1H1", "L1H5"]
    other = ids().flip(1)
    for whole, spread in models(mesh):
        outs: list[Tensor] = []
        for model in (spread, whole):
            with torch.no_grad(), mh.capture(model, keep="qk v outputs") as source:
                model(other)
            for what in ("output", "q", "k", "v"):
                with torch.no_grad(), mh.patch(model, source, names, what=what):
                    outs.append(model(ids()))
        for a, b in zip(outs[:4], outs[4:], strict=True):
            torch.testing.assert_close(a, b)


def others_refuse(mesh: DeviceMesh) -> None:
    if mesh.size() == 1:
        return
    _, spread = models(mesh)[0]
    with refused("needs all 5 heads"):
        mh.kinds(spread, [row.tolist() for row in ids()])


def a_cut_model(mesh: DeviceMesh) -> None:
    """Heads were taken out first: 4 of 5, and 5 of 6 in groups of 2 and 3."""
    model = Model().eval()
    whole = mh.cut(model, mh.plan(model, remove=["L0H1", "L1H0"]), refit=False)
    spread = parallelize_module(copy.deepcopy(whole), mesh, tensor_parallel_plan(whole))
    with torch.no_grad():
        torch.testing.assert_close(spread(ids()), whole(ids()))
        assert (whole(ids()) - model(ids())).abs().max() > 1e-3
    data = [row.tolist() for row in ids()]
    want, table = mh.measure(whole, data), mh.measure(spread, data)
    assert table.heads == want.heads
    torch.testing.assert_close(table.numbers("entropy"), want.numbers("entropy"))


def hugging_face_models(mesh: DeviceMesh) -> None:
    """LLaMA, spread by its own plan."""
    if mesh.size() != 2:  # importing transformers costs more than all else here
        return
    from transformers import LlamaConfig, LlamaModel
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    torch.manual_seed(5)
    config = LlamaConfig(
        hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=6, num_key_value_heads=2, head_dim=4,
        intermediate_size=22, vocab_size=31,
    )  # fmt: skip
    whole = LlamaModel(config).eval()
    with torch.no_grad():
        for p in whole.parameters():
            p.mul_(9.0 if p.ndim == 2 else 1.0)
    spread = apply_tensor_parallelism(copy.deepcopy(whole), mesh)
    data = [row.tolist() for row in ids()]
    want, table = mh.measure(whole, data), mh.measure(spread, data)
    assert table.heads == want.heads, (table.heads, want.heads)
    torch.testing.assert_close(table.numbers("entropy"), want.numbers("entropy"))
    names = ["L0H4", "L1H1"]
    with torch.no_grad(), mh.ablate(spread, names):
        out = spread(ids()).last_hidden_state
    with torch.no_grad(), mh.ablate(whole, names):
        torch.testing.assert_close(out, whole(ids()).last_hidden_state)


CHECKS = [
    measured_as_one,
    gathered_without_pickle,
    kept_by_global_number,
    silenced_by_global_number,
    gated_by_global_number,
    patched_by_global_number,
    others_refuse,
    a_cut_model,
    hugging_face_models,
]
