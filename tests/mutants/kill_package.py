"""The checks of `kill_suite.py` that need more of the package than the layer."""

from __future__ import annotations

import copy
import hashlib
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from kill_suite import DIM, HEADS, check, made, same, tokens
from torch import Tensor, nn
from transformers import GPT2Config, GPT2Model

import multihead as mh
from multihead import mask
from multihead.corpus.accumulator import Accumulator, Batch, BatchRun
from multihead.corpus.documents import Corpus
from multihead.corpus.merge_tree import Tree
from multihead.corpus.run import run
from multihead.corpus.state import DamagedError, pack, unpack
from multihead.edit.calibration import Calibration
from multihead.edit.fitted_map import LinearMap
from multihead.edit.kv_sharing.input_moments import moments_of
from multihead.edit.kv_sharing.share import share_kv
from multihead.edit.refit import BlockRefit
from multihead.edit.surgery.install import install
from multihead.errors import MultiheadError
from multihead.model.head_weights import HeadWeights

# ---- seeing heads -----------------------------------------------------------------------------


class Bare(nn.Module):
    """Two attentions of given tensors through torch's kernel: 4 heads on 2, q and k and v in one."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, **options: Any) -> Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True, **options)


def drawn(queries: int, keys: int) -> tuple[Tensor, Tensor, Tensor]:
    shapes = ((2, HEADS, queries, DIM), (2, 2, keys, DIM), (2, 2, keys, DIM))
    q, k, v = (torch.randn(s, dtype=torch.float64) for s in shapes)
    return q, k, v


@check
def seen() -> None:
    """What a capture says of a call explains it: every mask that torch's kernel takes."""
    some = torch.rand(2, 1, 5, 9) > 0.4
    some[..., 0] = True
    hides = torch.zeros(2, 1, 5, 9, dtype=torch.float64).masked_fill(~some, torch.finfo(torch.float64).min)
    bias = torch.randn(1, HEADS, 5, 9, dtype=torch.float64)
    cases = [
        ({}, 5, 9, None, 0.0),
        ({"is_causal": True}, 7, 7, torch.ones(7, 7, dtype=torch.bool).tril(), 0.0),
        ({"is_causal": True}, 5, 9, torch.ones(5, 9, dtype=torch.bool).tril(), 0.0),  # from the top left
        ({"attn_mask": some}, 5, 9, some, 0.0),
        ({"attn_mask": hides, "scale": 0.3}, 5, 9, some, 0.0),
        ({"attn_mask": bias + hides}, 5, 9, some, bias),
    ]
    for options, queries, keys, allowed, added in cases:
        model, (q, k, v) = Bare(), drawn(queries, keys)
        with torch.no_grad(), mh.capture(model, keep="qk v outputs") as heads:
            model(q, k, v, **options)
        scores = q @ k.repeat_interleave(2, 1).mT * options.get("scale", DIM**-0.5) + added
        scores = scores if allowed is None else scores.masked_fill(~allowed, -torch.inf)
        want = scores.softmax(-1)
        for h in range(HEADS):
            same(heads[0, h].weights(), want[:, h], f"{options.keys()}, head {h}")
            same(heads[0, h].output(), want[:, h] @ v[:, h // 2], "its output")
        count = torch.tensor(float(keys)) if allowed is None else allowed.sum(-1).double().mean()
        same(heads.statistics(heads.sites[0]).mean("visible"), count.double().expand(HEADS), "visible keys")


@check
def statistics() -> None:
    """Every statistic is what the whole map in fp64 gives."""
    from multihead.layer import Groups, Problem, attend
    from multihead.layer._coordinates import Coordinates
    from multihead.layer._problem import ScoreConfig
    from multihead.model.call import Tokens
    from multihead.model.statistics.head_statistics import HeadStatistics
    from multihead.model.statistics.statistics_options import Statistics
    from unit.measures.brute import rows

    options = Statistics(offsets=3, special=[1], classes={"low": [0, 1, 2]})
    ids, real = torch.randint(0, 4, (2, 9)), torch.arange(9) < torch.tensor([[9], [6]])
    tokens = Tokens(ids, real)
    for seen, softcap, sinks in (
        (mask.causal() & mask.padding(real), None, None),
        (mask.padding(real), 1.5, None),
        (mask.window(4, 2), None, torch.randn(HEADS, dtype=torch.float64)),
    ):
        q, k, v = drawn(9, 9)
        problem = Problem(
            q,
            k,
            v,
            Groups.even(HEADS, 2),
            seen,
            Coordinates(2, HEADS, 9, 9, q.device),
            ScoreConfig(0.7, softcap, sinks),
        )
        out = attend(problem)
        got = HeadStatistics(HEADS, options)
        got.update(problem, out, tokens, tokens)
        for name, want in rows(problem, out, tokens, tokens, options).items():
            same(got.mean(name), want.transpose(0, 1).flatten(1).nanmean(-1), f"{seen}: {name}")


@check
def interventions() -> None:
    model, (q, k, v), (q2, k2, v2) = Bare(), drawn(5, 5), drawn(5, 5)
    plain = lambda a, b, c: (a @ b.repeat_interleave(2, 1).mT * DIM**-0.5).softmax(-1) @ c.repeat_interleave(2, 1)
    want, wide = plain(q, k, v), v.repeat_interleave(2, 1)
    with torch.no_grad(), mh.capture(model, keep="qk v outputs") as heads:
        model(q2, k2, v2)
    replaced = {
        "zero": torch.zeros_like(want[:, 2]),
        "mean": want[:, 2].mean((0, 1)).expand_as(want[:, 2]),
        "uniform": wide[:, 2].mean(1, keepdim=True).expand_as(want[:, 2]),
    }
    with torch.no_grad():
        for how, new in replaced.items():
            with mh.ablate(model, ["L0H2"], replace=how, sites=heads.sites):
                got = model(q, k, v)
            same(got[:, 2], new, how)
            same(got[:, [0, 1, 3]], want[:, [0, 1, 3]], f"{how}, other heads")
        for what, new in {
            "output": plain(q2, k2, v2),
            "q": plain(q2, k, v),
            "k": plain(q, k2, v),
            "v": plain(q, k, v2),
        }.items():
            with mh.patch(model, heads, ["L0H3"], what=what):
                got = model(q, k, v)
            same(got[:, 3], new[:, 3], what)
            same(got[:, :3], want[:, :3], f"{what}, other heads")
    with mh.gate(model) as gates:
        (model(q, k, v) * wide).sum().backward()
    same(gates["L0"].grad.double(), (want * wide).sum((0, 2, 3)).float().double(), "gates")


class Stream(nn.Module):
    """Two attentions that write into a residual stream."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(made() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


@check
def grouping() -> None:
    """Heads 0 and 2, and 1 and 3, have the same keys and values but for a change of basis and the value bias."""
    model = Stream()
    with torch.no_grad():
        for one, other in ((0, 2), (1, 3)):
            for w in (model.layers[0].k_proj, model.layers[0].v_proj):
                rows = w.weight.unflatten(0, (HEADS, DIM))
                rows[other] = torch.randn(DIM, DIM, dtype=torch.float64) @ rows[one]
        batch = {"x": tokens(3, 23)}
        layer, want = mh.anatomy(model, batch)[0], model(**batch)
        moments = moments_of(model, layer, [batch])
        for weights in (HeadWeights.of(layer), HeadWeights.of(layer).keep([3, 0, 2, 1])):
            small = copy.deepcopy(model)
            install(small, layer, share_kv(weights, ((0, 2), (1, 3)), moments))
            assert small.layers[0].k_proj.out_features == 2 * DIM, "keys are not shared"
            off = (small(**batch) - want).abs().max() / want.abs().max()
            assert off < 1e-6, f"grouped heads: off by {off:.3g}"


@check
def refitting() -> None:
    """W_O of the second layer behind a first one that lost two heads, beside its normal equations written out."""
    model = Stream()
    given = [{"x": tokens(2, 11)} for _ in range(9)]
    with torch.no_grad():
        first = mh.anatomy(model, given[0])[0]
        small = copy.deepcopy(model)
        install(small, first, HeadWeights.of(first).keep([0, 3]))
        text = Calibration(model, given)
        run = text.block_run(model, small)
        run.advance("layers.1")
        refit = BlockRefit(run, text.blocks[1], text)
        refit.run_original([*refit.held_batches, *refit.fit_batches])
        w_o = LinearMap(small, text.blocks[1].writers[0])
        sums = refit.normal_equations(w_o)
        sums.merge(refit.measure(w_o)[0])
        ((ridge, found),) = sums.solutions([0.1])
        x = torch.cat([b["x"] for b in given])
        with mh.capture(small, keep="outputs") as heads:
            got = small(x)
        z = torch.cat([heads[1, h].output() for h in range(HEADS)], dim=-1).flatten(0, 1)
        z = torch.cat([z, torch.ones(len(z), 1).double()], dim=1)
        gram, missing = z.T @ z, (model(x) - got).flatten(0, 1)
        pull = torch.cat([torch.full((HEADS * DIM,), float(gram.diagonal()[:-1].mean())), torch.zeros(1)]).double()
        change = torch.linalg.solve(gram + ridge * pull.diag(), z.T @ missing)
        same(found, change, "the change of W_O and b_O")


class Drawn(Accumulator):
    """Sums the number of each batch, times its new tokens."""

    name = "drawn"

    def __init__(self) -> None:
        super().__init__()
        self.total = torch.zeros(1, dtype=torch.float64)

    def end(self, batch: Batch, run: BatchRun) -> None:
        new = 0 if batch.repeated is not None and bool(batch.repeated.all()) else run.inputs["input_ids"].numel()
        self.total = self.total + (batch.index + 1) * new

    def merge(self, later: Any) -> None:
        self.total = self.total + later.total

    def state(self) -> dict[str, Any]:
        return {"total": self.total}

    def load(self, state: Any) -> None:
        self.total = state["total"]


@check
def parting() -> None:
    """Parts are joined in one order, a changed bit of a save is noticed, batches are numbered over all parts."""
    tree: Tree[str] = Tree(lambda left, right: f"({left}{right})")
    for part in (3, 0, 4, 2, 1):
        tree.put((0, part), str(part))
    assert tree.root() == "(((01)(23))4)", tree.root()
    data = bytearray(pack({"x": torch.ones(3)}))
    data[-2] ^= 1
    try:
        unpack(bytes(data), "a save")
    except DamagedError:
        pass
    else:
        raise AssertionError("a changed bit is not noticed")
    torch.manual_seed(0)
    model = GPT2Model(GPT2Config(n_layer=1, n_head=2, n_embd=8, vocab_size=9, n_positions=8)).eval()
    documents, drawn = [[1, 2], [3], [4, 5], *[[1, 2]] * 13, [6], [3]], Drawn()
    run(model, Corpus(model, documents, batch_size=1, window=1), [drawn])
    # The first part has 16 documents, the last 13 of them copies; the second part has a document and a copy.
    same(drawn.total, torch.tensor([1 * 2 + 2 * 1 + 3 * 2 + 1_000_001.0]).double(), "numbered")


# ---- saving -----------------------------------------------------------------------------------


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except MultiheadError:
        return True
    return False


@check
def saving() -> None:
    """A save that does not compute the same is refused, and so are changed weights and contradicting sizes."""
    torch.manual_seed(0)
    model = GPT2Model(GPT2Config(n_layer=2, n_head=4, n_embd=8, vocab_size=9, n_positions=8)).eval()
    model.h[0].mlp.c_proj.weight.data.normal_()  # as large as the rest
    install(model, (layer := mh.anatomy(model)[0]), HeadWeights.of(layer).keep([0, 2, 3]))
    with tempfile.TemporaryDirectory() as here:
        folder = Path(here) / "a"
        mh.save(model, folder)
        weights, manifest = folder / "multihead.safetensors", (folder / "multihead.json").read_bytes()
        data = bytearray(weights.read_bytes())
        data[-2] ^= 1
        weights.write_bytes(data)
        assert refused(lambda: mh.load(folder)), "a changed bit is not noticed"
        data[-2] ^= 1
        weights.write_bytes(data)
        (folder / "multihead.json").write_bytes(manifest.replace(b'"reason": "', b'"reason": "x', 1))
        assert refused(lambda: mh.load(folder)), "a changed letter is not noticed"
        described = json.loads(manifest)
        del described["checksum"]
        step = {"do": "set", "at": "h.0.attn", "name": "head_dim", "value": 5}
        described["cut"]["steps"].append(step)
        checksum = hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()
        (folder / "multihead.json").write_text(json.dumps(described | {"checksum": checksum}))
        assert refused(lambda: mh.load(folder)), "sizes that contradict the weights are not noticed"
        model.h[0].mlp.act = nn.Tanh()
        assert refused(lambda: mh.save(model, Path(here) / "b")), "different outputs are not noticed"
        assert refused(lambda: model.save_pretrained(Path(here) / "c")), "save_pretrained writes a wrong config"
