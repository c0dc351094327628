"""Many heads, long texts, small files: what the page is made for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import multihead as mh
from multihead.measures.kinds.evidence import RULES
from multihead.model import Keep
from multihead.model.sites import Site
from multihead.show.encode import NEAR, BlobTable
from multihead.show.make_report import report
from multihead.show.report import CorpusInfo, ModelInfo, Report
from multihead.show.text_maps import ShownLayer, TextMaps, read_text
from multihead.table.column_info import ColumnInfo
from multihead.table.table import HeadTable
from page.conftest import TEXT, Open


@pytest.mark.parametrize(("layers", "each"), [(96, 96), (128, 128), (1, 1), (3, 61)])
def test_grids_of_every_size(layers: int, each: int, opened: Open, tmp_path: Path) -> None:
    torch.manual_seed(0)
    names = tuple(f"L{layer}H{h}" for layer in range(layers) for h in range(each))
    kinds = [rule.kind for rule in RULES] + ["match, 0.18", "position + word, 0.31"]
    columns: dict[str, Any] = {
        "kind": tuple(kinds[i % len(kinds)] for i in range(len(names))),
        "kind_detail": ("",) * len(names),
        "kind_score": torch.rand(len(names)),
        "importance": torch.rand(len(names)) ** 4,
        "entropy": torch.rand(len(names)) * 5,
    }
    table = HeadTable(names, columns, {n: ColumnInfo("share", n) for n in columns})
    shapes = tuple(ShownLayer(Site("", i, "", i, each), 10, 10, 8, tuple(range(each))) for i in range(layers))
    found = Report(ModelInfo("large", "Large", 175_000_000_000), CorpusInfo("", 5, 10), shapes, table=table)
    shown = opened(found.save(tmp_path / "large.html"))
    box = shown.page.locator("canvas.grid").bounding_box()
    cell = (box["width"] - 62) / each
    assert cell >= 5
    at = (layers // 2, each // 3)
    shown.page.locator("canvas.grid").hover(
        position={"x": 62 + (at[1] + 0.5) * cell, "y": 40 + (at[0] + 0.5) * cell}
    )
    assert shown.text(".hover").startswith(f"L{at[0]}H{at[1]} ·")
    assert shown.page.locator("table.heads tbody tr").count() == min(150, len(names))
    if len(names) > 150:
        shown.page.click(".more")
        assert shown.page.locator("table.heads tbody tr").count() == min(300, len(names))
    shown.go(f"layer={at[0]}&head={at[1]}")
    assert shown.text("h2") == f"L{at[0]}H{at[1]}"
    assert "not in this page" in shown.text("main")
    shown.go("view=heads&color=entropy")
    shown.shot(f"grid-{layers}-{each}")


def test_minilm_at_406_tokens(minilm: tuple[Any, Any], tmp_path: Path) -> None:
    """72 heads: less than 5 MB, and what is asked for is what is kept."""
    model, tokenizer = minilm
    text = " ".join([TEXT] * 20)
    found = report(model, [TEXT], tokenizer=tokenizer, text=text, parts=(), max_tokens=406)
    assert len(found.texts[0].sequences[0].shown) == 406
    assert found.texts[0].note == "window 1 of 3, of 406 tokens each"
    assert len(found.texts) == 1, "one window of this size is enough for a file"
    assert found.notes[-1].endswith("longer than the model can read at once: 3 windows, the first is in the page")
    assert found.save(tmp_path / "long.html").stat().st_size < 5e6


def test_long_text_of_some_heads(opened: Open, tmp_path: Path) -> None:
    """Size is linear in tokens where q and k are kept; heads that were not asked for are not there."""
    from transformers import LlamaConfig, LlamaModel

    torch.manual_seed(1)
    shape = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "num_hidden_layers": 2}
    shape |= {"max_position_embeddings": 5000}
    config = LlamaConfig(vocab_size=50, hidden_size=32, intermediate_size=8, initializer_range=0.3, **shape)
    model = LlamaModel(config).eval()
    sizes = {}
    for tokens in (2053, 4099):
        ids = torch.randint(0, 50, (tokens,)).tolist()
        found = report(model, [ids], parts=(), heads=["L0H1", "L1H3"])
        sizes[tokens] = sum(map(len, found.blobs.texts))
        assert [h.q is not None for h in found.texts[0].layers[0].heads if h is not None] == [True]
    assert sizes[4099] < 2.1 * sizes[2053]
    file = found.save(tmp_path / "long.html")
    assert file.stat().st_size < 3e6
    shown = opened(file, "layer=1&head=3&row=4000")
    with torch.no_grad(), mh.capture(model, statistics=None, keep=Keep(qk=["L1"])) as heads:
        model(input_ids=torch.tensor([ids]))
    rows = [0, 7, 1099, 4098]
    want = heads["L1H3"].weights(rows)[0]
    got = [shown.page.evaluate("i => multihead.row('L1H3', i)", i) for i in rows]
    assert (torch.tensor(got) - want).abs().max() < NEAR
    assert "token 4000, looks at" in shown.text(".said")
    assert shown.page.locator(".token").count() == 99, "of a text this long a part is shown"
    shown.shot("long-4099")
    shown.go("layer=0&head=0")
    assert "not in this page" in shown.text("main")


def test_two_sequences() -> None:
    """Encoder and decoder: rows and columns are named by their own sequence."""
    from transformers import T5Config, T5Model

    torch.manual_seed(0)
    model = T5Model(T5Config(vocab_size=50, d_model=16, d_kv=4, d_ff=8, num_layers=1, num_heads=3)).eval()
    batch = {"input_ids": torch.randint(0, 50, (1, 7)), "decoder_input_ids": torch.randint(0, 50, (1, 5))}
    data = read_text(model, batch, TextMaps(BlobTable()))
    lengths = [len(s.shown) for s in data.sequences]
    seen = {x.label: (lengths[x.rows], lengths[x.columns]) for x in data.layers}
    assert seen == {"encoder.L0": (7, 7), "decoder.L0": (5, 5), "cross.L0": (5, 7)}
