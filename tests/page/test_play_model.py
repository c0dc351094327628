"""The transformer of the page against torch: outputs, switches, gradients, tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

import multihead as mh
from multihead.model.capture import capture
from multihead.model.interventions import ablate
from multihead.sources.embedded.network import EmbeddedModel
from page.play_node import rounded_model, run_node

TOLERANCE = {"rtol": 1e-5, "atol": 2e-5}
"""Of single precision, after three layers."""

HEADS = [f"L{layer}H{head}" for layer in range(3) for head in range(4)]


@pytest.fixture(scope="module")
def model() -> EmbeddedModel:
    return rounded_model()


@pytest.fixture(scope="module")
def texts() -> list[list[int]]:
    """50 texts of 5 to 72 tokens: samples, and words drawn at random."""
    _, tokenizer = mh.embedded()
    generator = torch.Generator().manual_seed(11)
    lengths = [72, 71, *torch.randint(5, 25, (48,), generator=generator).tolist()]
    samples = [tokenizer(text)["input_ids"] for text in tokenizer.sample_texts()]
    drawn = [torch.randint(0, 214, (80,), generator=generator).tolist() for _ in range(len(lengths) - len(samples))]
    return [ids[:length] for ids, length in zip([*samples, *drawn], lengths, strict=True)]


def close(got: np.ndarray, want: torch.Tensor) -> None:
    torch.testing.assert_close(torch.from_numpy(got), want.double().flatten(), **TOLERANCE)


def test_logits_weights_and_heads(model: EmbeddedModel, texts: list[list[int]], tmp_path: Path) -> None:
    program = """
    for (const ids of input.texts) {
      const run = net.run(ids);
      put(run.logits);
      for (const layer of run.layers) {
        for (const weights of layer.weights) put(weights);
        put(layer.concatenated);
      }
    }"""
    want: list[torch.Tensor] = []
    for ids in texts:
        with torch.no_grad(), capture(model, statistics=None, keep="qk v outputs") as heads:
            want.append(model(torch.tensor([ids])).logits.flatten())
        for layer in range(3):
            own = [heads[layer, head] for head in range(4)]
            want += [head.weights()[0].flatten() for head in own]
            want.append(torch.stack([head.output()[0] for head in own], 1).flatten())
    close(run_node(program, tmp_path, texts=texts), torch.cat(want))


def test_each_head_off(model: EmbeddedModel, texts: list[list[int]], tmp_path: Path) -> None:
    program = """
    for (let layer = 0; layer < 3; layer += 1) {
      for (let head = 0; head < 4; head += 1) {
        const settings = model.intact(net.sizes);
        settings[layer].heads[head].scale = 0;
        for (const ids of input.texts) put(net.run(ids, settings).logits);
      }
    }"""
    long, short = texts[:2], texts[2:]
    want: list[torch.Tensor] = []
    for head in HEADS:
        with torch.no_grad(), ablate(model, [head]):
            want += [*_logits(model, long), *_logits(model, short)]
    close(run_node(program, tmp_path, texts=texts), torch.cat(want))


def _logits(model: EmbeddedModel, texts: list[list[int]]) -> list[torch.Tensor]:
    """Of each text, from one padded batch."""
    longest = max(map(len, texts))
    ids = torch.tensor([[*row, *[0] * (longest - len(row))] for row in texts])
    real = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in texts])
    logits = model(ids, real).logits
    return [row[: len(text)].flatten() for row, text in zip(logits, texts, strict=True)]


# ---- the same in torch, in one function, with every switch --------------------------------------


def plain_forward(
    model: EmbeddedModel, ids: list[int], *, merged: int | None = None, kv_heads: int = 4, scale: float = 1.0
) -> torch.Tensor:
    """Logits. `merged` is a layer with one head; head 1 of layer 0 is scaled; layer 2 has some kv heads."""
    n, x = len(ids), model.words(torch.tensor(ids))
    angle = torch.arange(n)[:, None] * 100.0 ** (-torch.arange(4, dtype=torch.float64) / 4)

    def split(y: torch.Tensor) -> torch.Tensor:
        return y.view(n, 4, 24).transpose(0, 1)

    def rotate(y: torch.Tensor) -> torch.Tensor:
        a, b, rest = y.split([4, 4, 16], -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(), rest], -1)

    for number, block in enumerate(model.layers):
        layer = block.attention
        normed = block.attention_norm(x)
        q, k, v = (split(p(normed)) for p in (layer.q_proj, layer.k_proj, layer.v_proj))
        q, k = rotate(q), rotate(k)
        if number == 2:
            k, v = (
                y.view(kv_heads, -1, n, 24)
                .mean(1, keepdim=True)
                .expand(-1, 4 // kv_heads, -1, -1)
                .reshape(4, n, 24)
                for y in (k, v)
            )
        scores = q @ k.transpose(1, 2) / 24**0.5
        if number == merged:
            joined_q, joined_k = (y.transpose(0, 1).reshape(n, 96) for y in (q, k))
            scores = (joined_q @ joined_k.T / 96**0.5).expand(4, n, n)
        seen = torch.ones(n, n, dtype=torch.bool).tril()
        heads = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ v
        if number == 0:
            heads = torch.cat([heads[:1], scale * heads[1:2], heads[2:]])
        x = x + layer.o_proj(heads.transpose(0, 1).reshape(n, 96))
        x = x + block.down(torch.nn.functional.gelu(block.up(block.hidden_norm(x))))
    return model.guess(model.norm(x))


CASES = [
    {},
    {"merged": 0},
    {"merged": 1, "scale": 0.25},
    {"kv_heads": 2, "scale": 0.5},
    {"kv_heads": 1, "merged": 2, "scale": -0.5},
]


def test_the_plain_forward_is_the_model(model: EmbeddedModel, texts: list[list[int]]) -> None:
    torch.testing.assert_close(plain_forward(model, texts[3]), model(torch.tensor([texts[3]])).logits[0])


def test_switches_and_gradients(model: EmbeddedModel, texts: list[list[int]], tmp_path: Path) -> None:
    program = """
    for (const one of input.cases) {
      const settings = model.intact(net.sizes);
      settings[0].heads[1].scale = one.scale ?? 1;
      settings[2].kvHeads = one.kv_heads ?? 4;
      if (one.merged !== undefined) settings[one.merged].merged = true;
      const run = net.run(input.ids, settings);
      put(run.logits);
      put([model.loss(run)]);
      for (const { q, k, v, o } of backward.gradients(net, run, settings)) for (const x of [q, k, v, o]) put(x);
    }"""
    ids = texts[3][:19]
    want: list[torch.Tensor] = []
    for case in CASES:
        model.zero_grad()
        logits = plain_forward(model, ids, **case)  # pyright: ignore[reportArgumentType]
        loss = cross_entropy(logits[:-1], torch.tensor(ids[1:]))
        loss.backward()
        want += [logits.detach().flatten(), loss.detach()[None]]
        for block in model.layers:
            layer = block.attention
            gradients = [p.weight.grad for p in (layer.q_proj, layer.k_proj, layer.v_proj, layer.o_proj)]
            assert all(float(x.abs().max()) > 1e-4 for x in gradients)
            want += [x.flatten().clone() for x in gradients]
    close(run_node(program, tmp_path, ids=ids, cases=CASES), torch.cat(want))


def test_patterns(texts: list[list[int]], tmp_path: Path) -> None:
    """The weights are those of the pattern, other heads of the layer keep theirs, and W_Q has no gradient."""
    program = """
    for (const pattern of model.PATTERNS) {
      const settings = model.intact(net.sizes);
      settings[1].heads[2].pattern = pattern;
      const run = net.run(input.ids, settings);
      put(run.layers[1].weights[2]);
      put(run.layers[1].weights[1]);
      put(net.run(input.ids).layers[1].weights[1]);
      put(backward.gradients(net, run, settings)[1].q.slice(48 * 64, 72 * 64));
    }"""
    ids = texts[5][:13]
    n = len(ids)
    row = torch.arange(n)
    patterns = {
        "uniform": torch.ones(n, n).tril() / (row[:, None] + 1),
        "previous": torch.eye(n)[(row - 1).clamp_min(0)],
        "first": torch.eye(n)[torch.zeros_like(row)],
    }
    found = run_node(program, tmp_path, ids=ids).reshape(3, -1)
    for got, want in zip(found, patterns.values(), strict=True):
        pattern_rows, other, intact = got[: 3 * n * n].reshape(3, n * n)
        close(pattern_rows, want)
        assert np.array_equal(other, intact)
        assert not got[3 * n * n :].any()


def test_tokens(tmp_path: Path) -> None:
    _, tokenizer = mh.embedded()
    texts = [
        *tokenizer.sample_texts()[:4],
        "The KEYS that ANA sees , are (new) .",
        "zebra <now> <NOW> <bad tag> x_y don't naïve 猫 ٣ a\u0301b",
        "",
        "  \t\n",
        "</script><script>alert(1)</script>",
        "<<now>>",
    ]
    program = (
        "for (const text of input.texts) { put(new tokenizer.Tokenizer(input.words).read(text).map((t) => t.id));}"
    )
    got = run_node(program, tmp_path, texts=texts, words=list(tokenizer.words))
    want = [i for text in texts for i in tokenizer(text)["input_ids"]]
    assert got.astype(int).tolist() == want
