"""The numbers of the maps in a real browser, against PyTorch."""

from __future__ import annotations

import torch

import multihead as mh
from multihead.show.encode import NEAR
from page.conftest import TEXT, Open, Page, maps_of


def test_maps_are_pytorchs(trained: Page, opened: Open) -> None:
    """All 72 heads of a trained model, in both ways of keeping them, in the browser."""
    want = maps_of(trained, torch.tensor([trained.tokenizer(TEXT)["input_ids"]]))
    shown = opened(trained.file, "layer=0&head=2")
    ways = {tuple(h.to_json()) for layer in trained.found.texts[0].layers for h in layer.heads if h is not None}
    assert len(ways) == 1, "kept in one way"
    assert len(want) == 72
    worst = max(float((shown.weights(name) - rows).abs().max()) for name, rows in want.items())
    assert worst < NEAR
    if "q" in next(iter(ways)):
        assert worst < NEAR / 2, "q and k are nearer than 8 bits"


def test_shaped_maps(trained: Page, opened: Open) -> None:
    """Norm-weighted and without delimiters, against the same in PyTorch."""
    ids = torch.tensor([trained.tokenizer(TEXT)["input_ids"]])
    with torch.no_grad(), mh.capture(trained.model, statistics=None, keep="qk v") as heads:
        trained.model(input_ids=ids)
    shown = opened(trained.file)
    layer = mh.anatomy(trained.model)[2]
    head = heads["L2H9"]
    lengths = (head.value()[0] @ layer.W_O[9].T).norm(dim=-1)
    plain = torch.tensor([i not in trained.tokenizer.all_special_ids for i in ids[0].tolist()])
    for options, factor in (
        ({"norm": True}, lengths),
        ({"hide": True}, plain),
        ({"norm": True, "hide": True}, lengths * plain),
    ):
        want = head.weights()[0] * factor
        want = (want / want.sum(-1, keepdim=True)).detach().double()
        got = shown.weights("L2H9", **options)
        assert (got - want).abs().max() < 0.02, options  # 8 bits of small weights, made larger
        assert (got - head.weights()[0]).abs().max() > 0.05, "the switch does something"


def test_causal_maps_and_the_cell_under_the_pointer(small: Page, opened: Open) -> None:
    ids = [int(i) for i in small.found.texts[0].sequences[0].shown]
    want = maps_of(small, torch.tensor([ids]))
    shown = opened(small.file, "layer=1&head=2", height=1400)
    for name, rows in want.items():
        assert (shown.weights(name) - rows).abs().max() < NEAR
    box = shown.page.locator("canvas.map").bounding_box()
    side, labels, n = box["width"] - 104, 104, len(ids)
    for i, j in ((11, 3), (22, 22), (0, 0), (4, 9)):
        x, y = (box["x"] + labels + (k + 0.5) * side / n for k in (j, i))
        shown.page.mouse.move(x, y - box["x"] + box["y"])
        value = float(shown.text(".cellnote").split()[-1])
        assert abs(value - float(want["L1H2"][i, j])) < NEAR + 5e-4, (i, j)
        assert shown.text(".cellnote").startswith(f"“{ids[i]}” → “{ids[j]}”")
