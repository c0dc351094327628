"""`multihead prune`: plans printed and kept, models written and proven, requests refused with what is allowed."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import multihead as mh
from cli.conftest import Folders, Said
from multihead.cli.options import LoadOptions

Multihead = Callable[..., Said]


def outputs(folder: Path, *silent: str) -> torch.Tensor:
    """Logits of a model in a folder, some heads of it ablated."""
    from transformers import AutoModelForCausalLM

    from multihead.store.load import load

    cut = (folder / "multihead.json").is_file()
    model = load(folder) if cut else AutoModelForCausalLM.from_pretrained(folder).eval()
    ids = torch.tensor([[5, 6, 7, 8, 9, 4, 11]])
    with torch.no_grad(), mh.ablate(model, list(silent)):
        return model(input_ids=ids).logits


# ---- what it writes ---------------------------------------------------------------------------


def test_named_heads_go_and_the_rest_is_as_it_was(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    out = tmp_path / "smaller"
    said = multihead(
        "prune", given.gpt2, "--heads", "0.1,L1H2", "--calibration", given.corpus, "--no-refit", "-o", out
    )
    assert said.code == 0, said.err
    assert said.out.splitlines()[:4] == [
        "GPT2LMHeadModel: 4 of 6 heads kept (request: remove L0H1, L1H2)",
        "layer  heads  removed",
        "L0     3 → 2  H1",
        "L1     3 → 2  H2",
    ]
    assert f"gpt2: 6 heads, 16.1 k parameters; calibration: {given.corpus}, 7 documents" in said.err
    assert "of memory" in said.err
    assert f"next: multihead check {given.gpt2} {out} --held-out held_out.txt" in said.err
    torch.testing.assert_close(outputs(out), outputs(given.gpt2, "L0H1", "L1H2"))
    record = json.loads((out / "multihead.json").read_text())
    assert "keep" in json.dumps(record), "the plan goes along"


def test_a_share_of_the_heads_by_every_method(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    for method in ("obs", "fisher", "random"):
        out = tmp_path / method
        said = multihead(
            "prune", given.gpt2, "--keep", 0.5, "--calibration", given.corpus, "--method", method, "-o", out
        )
        assert said.code == 0, said.err
        assert f"3 of 6 heads kept (request: keep=0.5; method: {method})" in said.out
        assert "warning: the calibration text is short" in said.err
        assert outputs(out).shape == (1, 7, 31)


def test_shapes_and_budgets(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    words = ("prune", given.gpt2, "--calibration", given.corpus, "--method", "random", "--dry-run", "--json")
    kept = lambda said: [len(x["keep"]) for x in json.loads(said.out)["plan"]["layers"]]
    assert kept(multihead(*words, "--keep", 0.67, "--uniform")) == [2, 2]
    assert min(kept(multihead(*words, "--keep", 0.34, "--min-heads", 1))) == 1
    fewer = multihead(*words, "--budget", "flops=0.9")
    assert fewer.code == 0, fewer.err
    assert sum(kept(fewer)) < 6


def test_json_and_quiet(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    out = tmp_path / "smaller"
    said = multihead(
        "prune", given.gpt2, "--keep", 0.5, "--calibration", given.corpus, "-o", out, "--json", "--quiet"
    )
    assert said.code == 0, said.err
    found = json.loads(said.out)
    assert found["changed"] is True
    assert found["plan"]["format"] == "multihead plan"
    assert found["parameters"][1] < found["parameters"][0]
    assert found["folder"] == str(out)
    assert found["fits"]
    assert [line for line in said.err.splitlines() if not line.startswith("warning")] == []


def test_heal(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    out = tmp_path / "healed"
    said = multihead("prune", given.gpt2, "--keep", 0.5, "--calibration", given.corpus, "--distill", 3, "-o", out)
    assert said.code == 0, said.err
    assert "distill: held-out loss" in said.err
    assert outputs(out).isfinite().all()


# ---- plans ------------------------------------------------------------------------------------


def test_a_dry_run_writes_the_plan_only_and_the_plan_is_carried_out(
    multihead: Multihead, given: Folders, tmp_path: Path
) -> None:
    plan, out = tmp_path / "plan.json", tmp_path / "smaller"
    words = ("--calibration", given.corpus, "--plan", plan)
    said = multihead("prune", given.gpt2, "--keep", 0.5, *words, "--dry-run", "-o", out)
    assert said.code == 0, said.err
    assert "a dry run: no model is written" in said.err
    assert f"plan → {plan}" in said.err
    assert [p.name for p in tmp_path.iterdir()] == ["plan.json"]
    data = json.loads(plan.read_text())
    data["layers"][0]["keep"], data["layers"][1]["keep"] = [0], [0, 1, 2]
    plan.write_text(json.dumps(data))
    part = tmp_path / "part.json"
    part.write_text(json.dumps(data | {"layers": data["layers"][:1]}))
    short = multihead("prune", given.gpt2, "--plan", part, "--dry-run")
    assert short.code == 2
    assert "the layers of the plan must be L0, L1, got L0" in short.err
    both = multihead("prune", given.gpt2, "--keep", 0.5, *words, "-o", out)
    assert both.code == 2
    assert f"{plan} holds a plan, and --keep requests a different one" in both.err
    said = multihead("prune", given.gpt2, *words, "--no-refit", "-o", out)
    assert said.code == 0, said.err
    assert "L0     3 → 1  H" in said.out
    torch.testing.assert_close(outputs(out), outputs(given.gpt2, "L0H1", "L0H2"))
    anew = multihead("prune", given.gpt2, "--keep", 0.5, *words, "--dry-run", "--force")
    assert anew.code == 0, anew.err
    assert sum(len(x["keep"]) for x in json.loads(plan.read_text())["layers"]) == 3


def test_a_plan_for_another_model_is_refused(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    words = ("--calibration", given.corpus, "--plan", plan)
    assert multihead("prune", given.gpt2, "--heads", "0.1", *words, "--dry-run").code == 0
    said = multihead("prune", given.other, *words, "-o", tmp_path / "x")
    assert said.code == 2
    assert "the plan is for GPT2LMHeadModel with fingerprint" in said.err
    assert "got GPT2LMHeadModel with fingerprint" in said.err
    assert not (tmp_path / "x").exists()


# ---- nothing to do, and what is refused -------------------------------------------------------


def test_a_request_that_changes_nothing_exits_1(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    out = tmp_path / "same"
    for words in (("--keep", 1.0), ("--kv-heads", 3), ("--keep", 0.99, "--method", "random")):
        said = multihead("prune", given.gpt2, *words, "--calibration", given.corpus, "-o", out)
        if words[1] == 0.99:
            assert said.code == 0, "one head goes"
            continue
        assert said.code == 1, said.err
        assert "the plan changes nothing" in said.out
        assert "nothing to cut: every head is kept" in said.err
        assert not out.exists()


@pytest.mark.parametrize(
    "words, line",
    [
        (("--keep", "0"), "--keep must be in (0, 1], got 0"),
        (("--keep", "1.5"), "--keep must be in (0, 1], got 1.5"),
        (("--keep", "nan"), "--keep must be finite, got nan"),
        (("--heads", "0.3"), "L0 has 3 heads, got head 3"),
        (("--heads", "L7H0"), "unknown layer in 'L7H0'; the model has L0 (3 heads), L1 (3 heads)"),
        (("--heads", "seven"), "'seven' is not a head name"),
        (("--heads", ","), "--heads must name a head"),
        (
            ("--kv-heads", "2"),
            "does not divide the 3 kv heads of L0 (transformer.h.0.attn)\n\nhint: choose one of 1, 3",
        ),
        (("--budget", "money=0.5"), "money"),
        (("--budget", "flops=1.5"), "flops must be in (0, 1], got 1.5"),
        (("--budget", "cache=2"), "cache must be in (0, 1], got 2"),
        (("--plan", "nowhere.json"), "there is no plan file nowhere.json"),
        (("--keep", "0.5", "--calibration", "/dev/null"), "/dev/null is not a file that can be read twice"),
        (("--budget", "flops=0.01"), "cannot be reached by removing heads"),
        ((), "nothing is requested"),
        (("--keep", "0.5", "--heads", "0.1"), "got --keep and --heads"),
        (("--keep", "0.5", "--distill", "0"), "--distill must be at least 1, got 0"),
        (("--keep", "0.5", "--batch-size", "0"), "--batch-size must be at least 1, got 0"),
        (("--keep", "0.5", "--min-heads", "4"), "min_heads=4, but L0 has 3 heads"),
        (("--budget", "latency=0.5"), "budget must be flops=X or cache=X, got 'latency=0.5'"),
    ],
)
def test_requests_that_are_refused(
    multihead: Multihead, given: Folders, tmp_path: Path, words: tuple[str, ...], line: str
) -> None:
    said = multihead("prune", given.gpt2, *words, "--calibration", given.corpus, "-o", tmp_path / "x")
    assert said.code == 2
    assert line in said.err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    "words, line",
    [
        (("--budget", "money=0.5"), "budget must be flops=X or cache=X, got 'money=0.5'"),
        (("--heads", "seven"), "'seven' is not a head name"),
        (("--keep", "0.5", "--min-heads", "-1"), "--min-heads must be at least 0, got -1"),
        (("--keep", "0.5", "--multiple-of", "0"), "--multiple-of must be at least 1, got 0"),
        (("--keep", "0.5", "--seed", "-1"), "seed must be at least 0, got -1"),
        (("--keep", "0.5", "--distill", "9", "--distill-lr", "0"), "lr must be"),
        (("--plan", "damaged"), "is not JSON"),
    ],
)
def test_values_are_checked_before_the_model_is_loaded(
    multihead: Multihead, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], line: str
) -> None:
    """A large model takes minutes to load."""
    monkeypatch.setattr(LoadOptions, "load", None)
    (tmp_path / "plan.json").write_text("{")
    words = tuple(str(tmp_path / "plan.json") if word == "damaged" else word for word in words)
    said = multihead("prune", "embedded", *words, "-o", tmp_path / "x")
    assert said.code == 2
    assert line in said.err


def test_where_it_goes(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    words = ("prune", given.gpt2, "--heads", "0.1", "--calibration", given.corpus, "--no-refit")
    assert "-o DIR is missing" in multihead(*words).err
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    said = multihead(*words, "-o", tmp_path / "full")
    assert said.code == 2
    assert "to be replaced, it holds mine.txt" in said.err
    forced = multihead(*words, "-o", tmp_path / "full", "--force")
    assert forced.code == 2, "it is no folder of a model"
    assert " parameters" not in forced.err, "it was said after the model was loaded"
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "config.json").write_text("{}")
    assert "old exists\n\nhint: --force replaces it" in multihead(*words, "-o", tmp_path / "old").err
    assert (tmp_path / "full" / "mine.txt").read_text() == "mine"
    nowhere = multihead(*words, "-o", "/proc/here/smaller")
    assert nowhere.code == 2
    assert "nothing can be written to /proc: " in nowhere.err
    assert " parameters" not in nowhere.err, "it was said after the model was loaded"
    assert multihead(*words, "-o", tmp_path / "out").code == 0
    assert multihead(*words, "-o", tmp_path / "out").code == 2
    assert multihead(*words, "-o", tmp_path / "out", "--force").code == 0


def test_the_sample_stands_in_and_a_foreign_text_is_told(
    multihead: Multihead, given: Folders, tmp_path: Path
) -> None:
    said = multihead("prune", given.gpt2, "--heads", "0.1", "--dry-run")
    assert said.code == 0, said.err
    assert "note: without --calibration a small sample of English stands in" in said.err
    assert "are unknown to the tokenizer: is the calibration text in the model's language?" in said.err
    (tmp_path / "empty.txt").write_text("\n\n")
    said = multihead("prune", given.gpt2, "--heads", "0.1", "--calibration", tmp_path / "empty.txt", "--dry-run")
    assert (said.code, "contains no text" in said.err) == (2, True)
    bare = multihead("prune", given.bare, "--heads", "0.1", "--ids", given.bare.parent / "ids.json", "--dry-run")
    assert bare.code == 0, bare.err


def test_a_cut_model_can_be_cut_again(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    words = ("--calibration", given.corpus, "--no-refit")
    assert multihead("prune", given.gpt2, "--heads", "0.1", *words, "-o", tmp_path / "one").code == 0
    again = multihead("prune", tmp_path / "one", "--heads", "0.1", *words, "-o", tmp_path / "two")
    assert again.code == 2
    assert "L0 has heads 0, 2" in again.err  # heads keep their names
    said = multihead("prune", tmp_path / "one", "--heads", "0.2", *words, "-o", tmp_path / "two")
    assert said.code == 0, said.err
    torch.testing.assert_close(outputs(tmp_path / "two"), outputs(given.gpt2, "L0H1", "L0H2"))


def test_grouping_after_a_budget_says_that_it_saves_more(multihead: Multihead, given: Folders) -> None:
    words = ("prune", given.gpt2, "--budget", "cache=0.5", "--calibration", given.corpus)
    after = multihead(*words, "--kv-heads", 1, "--dry-run")
    assert "the budget was spent on pruning; kv_heads=1 then saves more" in after.out
