"""A head of a cut model keeps its original name: in tables, in functions that take names, and after a reload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import multihead as mh
from multihead.errors import SizeError
from multihead.model.find_sites import find_sites

GONE = ("L0H2", "L1H0", "L1H3")
LEFT = ("L0H0", "L0H1", "L0H3", "L0H4", "L1H1", "L1H2", "L1H4")
IDS = [[3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [8, 9, 7, 9, 3, 2, 3], [8, 4, 6, 2, 6, 4, 3, 3, 8, 3, 2]]
BATCH = torch.tensor([IDS[0], IDS[2]])


@pytest.fixture(scope="module")
def original() -> Any:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(n_layer=2, n_head=5, n_embd=35, vocab_size=11, n_positions=31, initializer_range=0.5)
    return GPT2LMHeadModel(config).eval()


@pytest.fixture(scope="module")
def small(original: Any) -> Any:
    return mh.cut(original, mh.plan(original, remove=GONE), refit=False)


def _logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(BATCH).logits


def test_tables_have_the_original_names_and_compare_lines_them_up(original: Any, small: Any) -> None:
    before, after = mh.measure(original, IDS), mh.measure(small, IDS)
    assert after.heads == LEFT
    assert [after.row(name)["head"] for name in LEFT] == [0, 1, 3, 4, 1, 2, 4]
    change = before.compare(after)
    assert change.before.heads == change.after.heads == LEFT
    assert change.only_before == GONE
    assert change.only_after == ()
    # The first layer reads what it read before: each of its heads is compared with itself.
    assert change.difference["entropy"][:4].abs().max() < 1e-5
    assert before["entropy"].std() > 0.05
    for table in (mh.kinds(small, IDS).table, mh.similarity(small, IDS).table, mh.importance(small, IDS).table):
        assert sorted(table.heads) == list(LEFT)


def test_capture_and_anatomy_have_the_same_names(original: Any, small: Any) -> None:
    with torch.no_grad(), mh.capture(original, keep="qk") as before:
        original(BATCH)
    with torch.no_grad(), mh.capture(small, keep="qk") as after:
        small(BATCH)
    assert tuple(head.name for head in after) == LEFT
    for name in LEFT[:4]:  # of the first layer, whose input is the same
        torch.testing.assert_close(after[name].weights(), before[name].weights())
    torch.testing.assert_close(after[0, 3].weights(), after["L0H3"].weights())
    theirs, ours = mh.anatomy(original), mh.anatomy(small)
    for name in LEFT:
        assert torch.equal(ours[name].W_O, theirs[name].W_O), name
        assert torch.equal(ours[name].W_Q, theirs[name].W_Q), name
    with pytest.raises(SizeError, match="L0 has heads 0, 1, 3, 4, got head 2"):
        after["L0H2"]


def test_interventions_take_the_original_names(original: Any, small: Any) -> None:
    with mh.ablate(original, [*GONE, "L0H3", "L1H4"]):
        want = _logits(original)
    with mh.ablate(small, ["L0H3", "L1H4"]):
        torch.testing.assert_close(_logits(small), want)
    assert (want - _logits(small)).abs().max() > 1e-2
    with pytest.raises(SizeError, match="got head 2"), mh.ablate(small, ["L0H2"]):
        pass

    def gradients(model: Any) -> dict[str, float]:
        with mh.gate(model) as gates:
            model(BATCH).logits.square().sum().backward()
        return gates.gradients()

    with mh.ablate(original, GONE):
        before = gradients(original)
    after = gradients(small)
    assert tuple(after) == LEFT
    assert after == pytest.approx({name: before[name] for name in LEFT}, rel=1e-3)


def test_patch_takes_the_original_names(original: Any, small: Any) -> None:
    def patched(model: Any) -> torch.Tensor:
        with torch.no_grad(), mh.capture(model, keep="outputs qk v") as source:
            model(BATCH.flip(1))
        with mh.patch(model, source, ["L1H4"]):
            return _logits(model)

    with mh.ablate(original, GONE):
        want = patched(original)
    torch.testing.assert_close(patched(small), want)
    assert (want - _logits(small)).abs().max() > 1e-3


def test_plans_of_a_cut_model(small: Any, tmp_path: Path) -> None:
    plan = mh.plan(small, IDS, remove=["L0H3", "L1H4"])
    assert "H3" in str(plan)
    assert plan["L0"].removed == (2,)
    assert plan.request == "remove L0H3, L1H4"
    with pytest.raises(SizeError, match="got head 2"):
        mh.plan(small, remove=["L0H2"])
    ranked = mh.plan(small, IDS, keep=0.5, method="fisher")
    assert tuple(sorted(ranked.scores)) == LEFT
    plan.save(tmp_path / "plan.json")
    again = type(plan).load(tmp_path / "plan.json")
    assert again["L0"].numbers == (0, 1, 3, 4)
    left = ("L0H0", "L0H1", "L0H4", "L1H1", "L1H2")
    smaller = mh.cut(small, again, refit=False)
    assert tuple(find_sites(smaller).heads) == left
    mh.save(smaller, tmp_path / "saved")
    assert tuple(find_sites(mh.load(tmp_path / "saved")).heads) == left


def test_shared_heads_keep_their_names(original: Any) -> None:
    """Heads of one kv head are stored side by side, in an order that is not that of their names."""
    plan = mh.plan(original, IDS, remove=["L0H2"]).edit(groups={"L0": [[0, 4], [1, 3]]})
    shared = mh.cut(original, plan, IDS, refit=False)
    assert find_sites(shared).heads[:4] == ["L0H0", "L0H4", "L0H1", "L0H3"]
    ours, theirs = mh.anatomy(shared), mh.anatomy(original)
    # a plan of the cut model names groups by the same numbers
    again = mh.plan(shared, IDS, remove=["L1H0"]).edit(groups={"L0": [[4, 3], [0, 1]]})
    assert again["L0"].groups == ((1, 3), (0, 2))
    with pytest.raises(SizeError, match=r"heads \[0, 1, 3, 4\], got 2"):
        again.edit(groups={"L0": [[4, 2], [0, 1]]})
    assert ours["L0H4"].kv_head == ours["L0H0"].kv_head != ours["L0H3"].kv_head
    assert theirs["L0H4"].kv_head != theirs["L0H0"].kv_head


def test_the_embedded_model() -> None:
    model, tokenizer = mh.embedded()
    texts = list(tokenizer.sample_texts())[:2]
    gone = ("L0H1", "L2H0")
    small = mh.cut(model, mh.plan(model, remove=gone), refit=False)
    before, after = (mh.measure(m, texts, tokenizer=tokenizer) for m in (model, small))
    assert after.heads == tuple(name for name in before.heads if name not in gone)
    change = before.compare(after)
    assert change.only_before == gone
    first = [name for name in after.heads if name.startswith("L0")]
    assert change.difference.filter(heads=first)["entropy"].abs().max() < 1e-5
