"""Wrong use gives a `MultiheadError` that names the argument and its value, not a raw error and not a result."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
import torch
from torch import nn
from transformers import GPT2Config, GPT2LMHeadModel

import multihead as mh
from multihead.measures import Statistics
from multihead.model.capture import Capture
from multihead.sources.embedded.network import EmbeddedConfig, EmbeddedModel
from multihead.table.column_info import ColumnInfo

IDS = [[5, 9, 2, 6, 5, 3], [8, 7, 9, 3, 2], [6, 2, 6, 4]]


def model() -> nn.Module:
    torch.manual_seed(0)
    return EmbeddedModel(EmbeddedConfig(31, width=24, layers=2, heads=3, hidden=19)).eval()


def folder_with(config: str) -> str:
    folder = Path(mkdtemp())
    (folder / "config.json").write_text(config)
    return str(folder)


def entered(block: Any) -> None:
    with block:
        pass


def captured(keep: str | None = None) -> Capture:
    net = model()
    with torch.no_grad(), mh.capture(net, keep=keep) as heads:
        net(torch.tensor(IDS[:1]))
    return heads


def gradients_without_backward() -> None:
    net = model()
    with mh.gate(net) as gates:
        net(torch.tensor(IDS[:1]))
    gates.gradients()


def gpt2() -> nn.Module:
    return GPT2LMHeadModel(GPT2Config(n_layer=1, n_head=3, n_embd=24, vocab_size=31)).eval()


def broken() -> nn.Module:
    net = model()
    with torch.no_grad():
        net.get_parameter(mh.anatomy(net)[1].weights["q"].parameter)[0, 0] = float("nan")
    return net


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "weights that are NaN": (
        lambda: mh.plan(broken(), IDS, keep=0.5),
        "values that are NaN or infinite",
    ),
    "bools for a head": (lambda: mh.plan(model(), remove=[(True, False)]), r"\(True, False\) is not a head name"),
    "texts for a head": (
        lambda: mh.plan(model(), remove=[("decoder", "0", "1")]),  # type: ignore[list-item]
        "'1'.* is not a head name",
    ),
    "classes without names": (
        lambda: mh.kinds(model(), IDS, classes=[3]),  # type: ignore[arg-type]
        r"classes must be a dict .* got the list \[3\]",
    ),
    "one id for a class": (
        lambda: mh.kinds(model(), IDS, classes={"a": 3}),  # type: ignore[dict-item]
        "class 'a' must be a list .* got the int 3",
    ),
    "a number for an id": (
        lambda: mh.kinds(model(), IDS, classes={"a": [1.5]}),  # type: ignore[list-item]
        "class 'a' must be .*1.5",
    ),
    "a text for special tokens": (
        lambda: mh.kinds(model(), IDS, special="a"),  # type: ignore[arg-type]
        "special must be .* 'a'",
    ),
    "a kind that does not exist": (lambda: mh.kinds(model(), IDS).of("previos"), "unknown kind 'previos'"),
    "a batch without documents to name heads": (
        lambda: mh.kinds(gpt2(), {"input_ids": torch.zeros(0, 3, dtype=torch.long)}),
        r"does not run on input_ids of shape \(0, 3\)",
    ),
    "a batch without documents to rank heads": (
        lambda: mh.importance(gpt2(), {"input_ids": torch.zeros(0, 3, dtype=torch.long)}),
        r"does not run on input_ids of shape \(0, 3\)",
    ),
    "no model": (
        lambda: mh.measure(None, IDS),  # type: ignore[arg-type]
        r"model must be a torch\.nn\.Module, got None",
    ),
    "no model to capture": (lambda: entered(mh.capture(None)), "model must be"),  # type: ignore[arg-type]
    "no model to ablate": (lambda: entered(mh.ablate(None, ["L0H0"])), "model must be"),  # type: ignore[arg-type]
    "no anatomy": (lambda: mh.anatomy(None), "model must be"),  # type: ignore[arg-type]
    "a name for a model": (
        lambda: mh.kinds("gpt2", IDS),  # type: ignore[arg-type]
        "model must be .* got the str 'gpt2'",
    ),
    "no weights": (
        lambda: mh.measure(nn.TransformerEncoderLayer(12, 3, device="meta"), [{"src": torch.ones(2, 3, 12)}]),
        "self_attn.in_proj_weight is on the meta device",
    ),
    "no data": (
        lambda: mh.measure(model(), None),  # type: ignore[arg-type]
        "data must be documents or batches, got None",
    ),
    "a number for data": (lambda: mh.kinds(model(), 5), "data must be .* got the int 5"),  # type: ignore[arg-type]
    "a name for a tokenizer": (
        lambda: mh.measure(model(), ["a b"], tokenizer="gpt2"),
        "tokenizer must be .* got the str 'gpt2'",
    ),
    "bool ids": (
        lambda: mh.measure(model(), [torch.tensor([True, False])]),
        r"document 0 .*torch\.bool",
    ),
    "bools for ids": (lambda: mh.measure(model(), [[True, False]]), r"document 0 must be .* got the list \[True"),
    "bytes for text": (lambda: mh.measure(model(), [b"ab"]), "document 0 must be .* got the bytes b'ab'"),
    "a file system that cannot be written": (
        lambda: mh.measure(model(), IDS, out="/proc/nope/run"),
        "nothing can be written to /proc",
    ),
    "a slice of rows": (
        lambda: captured("qk")["L0H0"].weights(rows=slice(2)),  # type: ignore[arg-type]
        "rows must be .* got the slice",
    ),
    "a number for means": (
        lambda: mh.ablate(model(), ["L0H0"], replace="mean", means=3),  # type: ignore[arg-type]
        "means must be a capture or None, got the int 3",
    ),
    "means that are not used": (lambda: mh.ablate(model(), ["L0H0"], means=captured()), "got replace='zero'"),
    "a path for a source": (
        lambda: mh.patch(model(), "run", ["L0H0"]),  # type: ignore[arg-type]
        "source must be a capture, got the str",
    ),
    "gradients of a block without backward": (gradients_without_backward, "no gate has a gradient"),
    "no similar pairs": (lambda: mh.similarity(model(), IDS).most_similar(0), "count must be at least 1, got 0"),
    "numbers for documents": (
        lambda: mh.measure(model(), [7, 8]),  # type: ignore[list-item]
        "document 0 must be a text, .* got the int 7",
    ),
    "a batch without ids": (
        lambda: mh.measure(model(), [{"attention_mask": torch.ones(1, 3)}]),
        "EmbeddedModel cannot be called with attention_mask: missing a required argument: 'input_ids'",
    ),
    "keep": (
        lambda: entered(mh.capture(model(), keep=5)),  # type: ignore[arg-type]
        "keep must be words or a Keep, got 5",
    ),
    "statistics": (
        lambda: mh.measure(model(), IDS, statistics="all"),  # type: ignore[arg-type]
        "statistics must be a Statistics or None, got 'all'",
    ),
    "classes": (
        lambda: Statistics(classes=5),  # type: ignore[arg-type]
        "classes must map names to token ids, got 5",
    ),
    "a list of gates": (
        lambda: entered(mh.gate(model(), {"L0": [1, 1, 1]})),  # type: ignore[dict-item]
        r"gate of 'L0' must be a tensor, got \[1, 1, 1\]",
    ),
    "a loss that is a number": (
        lambda: mh.importance(model(), IDS, loss=lambda output, batch: 1.0),
        r"must return shape \(3,\) for 3 documents, got 1\.0",
    ),
    "a detached loss": (
        lambda: mh.importance(model(), IDS, loss=lambda output, batch: output.logits.detach().sum((1, 2))),
        "the loss must have a gradient",
    ),
    "within": (lambda: mh.similarity(model(), IDS, within=-1), r"within must be in \[0, 1\], got -1"),
    "nothing to count": (lambda: mh.cost([]), "model must not be an empty list"),
    "part of a token": (
        lambda: mh.cost("gpt3", tokens=1.5),  # type: ignore[arg-type]
        r"tokens must be an integer, got 1\.5",
    ),
    "no token": (lambda: mh.cost("gpt3", tokens=0), "tokens must be at least 1, got 0"),
    "a number for a folder": (
        lambda: mh.measure(model(), IDS, out=3),  # type: ignore[arg-type]
        "out must be the path of a folder or None, got the int 3",
    ),
    "resume without a folder": (lambda: mh.measure(model(), IDS, resume=True), "resume .* out=None"),
    "parts that are a number": (
        lambda: mh.measure(model(), IDS, parts=3),
        "parts must be a list of parts, got the int 3",
    ),  # type: ignore[arg-type]
    "a treebank that is a number": (
        lambda: mh.measure(model(), IDS, treebank=3),  # type: ignore[arg-type]
        "treebank must be the path of a file, got the int 3",
    ),
    "progress that is a number": (
        lambda: mh.measure(model(), IDS, progress=3),
        "progress must be .* got the int 3",
    ),  # type: ignore[arg-type]
    "a number that cannot speak": (
        lambda: mh.measure(model(), IDS, say=3),  # type: ignore[arg-type]
        "say must be a function .* the int 3",
    ),
    "a number for heads": (
        lambda: entered(mh.ablate(model(), 3)),  # type: ignore[arg-type]
        "heads must be a list of names, got the int 3",
    ),
    "a number for gates": (
        lambda: entered(mh.gate(model(), 3)),  # type: ignore[arg-type]
        "values must be a dict .* got the int 3",
    ),
    "a number for layers": (
        lambda: mh.similarity(model(), IDS, layers=3),  # type: ignore[arg-type]
        "layers must be a list .* the int 3",
    ),
    "progress of similarity": (
        lambda: mh.similarity(model(), IDS, progress=3),  # type: ignore[arg-type]
        "progress must be .* the int 3",
    ),
    "progress of importance": (
        lambda: mh.importance(model(), IDS, progress=3),  # type: ignore[arg-type]
        "progress must be .* the int 3",
    ),
    "progress of theory": (
        lambda: mh.theory(model(), IDS, progress=3),  # type: ignore[arg-type]
        "progress must be .* the int 3",
    ),
    "a word for offsets": (
        lambda: mh.kinds(model(), IDS, offsets="a"),  # type: ignore[arg-type]
        "offsets must be an integer, got 'a'",
    ),
    "a folder that is no config": (
        lambda: mh.load_pretrained(folder_with("[]")),
        r"config\.json must hold .* got \[\]",
    ),
    "the cost of no config": (lambda: mh.cost(folder_with("[]")), r"config\.json must hold .* got \[\]"),
    "an unknown column": (lambda: mh.measure(model(), IDS).why("nope", "L0H0"), "unknown column 'nope'"),
}


REPORTED: dict[str, tuple[object, str]] = {
    "path": (3, "path must be the path of a file, got the int 3"),
    "parts": (3, "parts must be a list of parts, got the int 3"),
    "heads": (3, "heads must be a list of names, got the int 3"),
    "curve": (3, "curve must be a Curve or None, got the int 3"),
    "maps": ("foo", "unknown maps 'foo'\n\nhint: choose from maps, qk"),
    "progress": (3, "progress must be True, False or a function, got the int 3"),
    "name": (3, "name must be a text or None, got the int 3"),
    "corpus_name": (3, "corpus_name must be a text, got the int 3"),
}


@pytest.mark.parametrize("argument", REPORTED)
def test_a_wrong_argument_of_report_is_named(argument: str) -> None:
    value, message = REPORTED[argument]
    with pytest.raises(mh.MultiheadError, match=message):
        mh.report(model(), IDS, **{"parts": ["cost"], argument: value})  # type: ignore[arg-type]


def test_no_list_of_parts_is_named() -> None:
    with pytest.raises(mh.MultiheadError, match="parts must be a list of parts, got None"):
        mh.report(model(), IDS, parts=None)  # type: ignore[arg-type]


TABLE: dict[str, tuple[Callable[[mh.HeadTable], object], str]] = {
    "top": (lambda table: table.top("entropy", "a"), "count must be an integer, got 'a'"),  # type: ignore[arg-type]
    "save": (lambda table: table.save(3), "path must be the path of a file, got the int 3"),  # type: ignore[arg-type]
    "load": (lambda table: mh.HeadTable.load(3), "path must be the path of a file, got the int 3"),  # type: ignore[arg-type]
    "compare": (lambda table: table.compare(3), "other must be a HeadTable, got the int 3"),  # type: ignore[arg-type]
    "join": (lambda table: table.join(3), "other must be a HeadTable, got the int 3"),  # type: ignore[arg-type]
    "select": (lambda table: table.select("x"), "columns must be a list of names, got the str 'x'"),
    "heads": (lambda table: table.filter(heads="L0H0"), "heads must be a list of names, got the str 'L0H0'"),
    "filter": (lambda table: table.filter(3), "a condition must be a text or a function .* got the int 3"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("method", TABLE)
def test_a_wrong_argument_of_a_table_is_named(method: str) -> None:
    call, message = TABLE[method]
    table = mh.HeadTable(("L0H0", "L0H1"), {"entropy": torch.ones(2)}, {"entropy": ColumnInfo("nats", "")})
    with pytest.raises(mh.MultiheadError, match=message):
        call(table)


def test_a_page_is_saved_to_a_path() -> None:
    with pytest.raises(mh.MultiheadError, match="path must be the path of a file, got the int 3"):
        mh.report(model(), IDS, parts=["cost"]).save(3)  # type: ignore[arg-type]


SEEDED: dict[str, Callable[[Any], Any]] = {
    "measure": lambda seed: mh.measure(model(), IDS, parts=["kinds"], seed=seed),
    "kinds": lambda seed: mh.kinds(model(), IDS, seed=seed),
    "importance": lambda seed: mh.importance(model(), IDS, seed=seed),
    "similarity": lambda seed: mh.similarity(model(), IDS, seed=seed),
    "theory": lambda seed: mh.theory(model(), IDS, seed=seed),
    "plan": lambda seed: mh.plan(model(), IDS, keep=0.5, seed=seed),
    "report": lambda seed: mh.report(model(), IDS, seed=seed),
}


@pytest.mark.parametrize("function", SEEDED)
@pytest.mark.parametrize("seed", [10**30, -1, "x"])
def test_a_wrong_seed_is_named(function: str, seed: object) -> None:
    with pytest.raises(mh.MultiheadError, match=f"seed must be .*got .?{seed}"):
        SEEDED[function](seed)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_argument_is_named(name: str) -> None:
    call, message = WRONG[name]
    with pytest.raises(mh.MultiheadError, match=message):
        call()
