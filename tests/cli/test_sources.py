"""MODEL of every command: embedded, a name on the hub, module:function; and what is said where it is none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from cli.conftest import Folders, Said
from multihead.cli.load import load_model, model_folder
from multihead.cli.sources import is_function, is_hub_name
from multihead.errors import MultiheadError

Multihead = Callable[..., Said]
SOURCE = str(Path(__file__).parents[2] / "src")

MODELS = """
import torch
from torch import nn
import multihead as mh
from multihead.sources.embedded.network import EmbeddedConfig, EmbeddedModel

def both():
    return mh.embedded()

def alone():
    return EmbeddedModel(EmbeddedConfig(31, width=24, layers=2, heads=3)).double()

def asks(folder): return folder
def text(): return "a model"
def three(): return alone(), None, None
def odd(): return alone(), 7
def breaks(): raise ValueError("no weights\\nat all")
class Shop:
    @staticmethod
    def inside(): return alone()
ready = alone()
number = 3
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a module of models in it, in which commands run."""
    (tmp_path / "some_models.py").write_text(MODELS)
    (tmp_path / "broken_models.py").write_text("import module_that_nobody_has\n")
    (tmp_path / "failing_models.py").write_text("raise RuntimeError('not today')\n")
    monkeypatch.chdir(tmp_path)
    for name in ("some_models", "broken_models", "failing_models"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


class TestNames:
    @pytest.mark.parametrize(
        ("name", "hub", "function"),
        [
            ("openai-community/gpt2", True, False),
            ("org/name-1.5_b", True, False),
            ("gpt2", False, False),
            ("./org/name", False, False),
            ("/org/name", False, False),
            ("a/b/c", False, False),
            ("org/..", False, False),
            ("models:tiny", False, True),
            ("my.models:Shop.tiny", False, True),
            ("models.py:tiny()", False, False),
            ("models:", False, False),
            ("http://host/x", False, False),
        ],
    )
    def test_which_is_what(self, name: str, hub: bool, function: bool) -> None:
        assert (is_hub_name(name), is_function(name)) == (hub, function)

    def test_a_folder_goes_first(self, here: Path, given: Folders) -> None:
        for name in ("embedded", "org/name", "some_models:alone"):
            (here / name).parent.mkdir(exist_ok=True)
            (here / name).symlink_to(given.gpt2)
            assert type(load_model(Namespace(model=name)).model).__name__ == "GPT2LMHeadModel"

    def test_no_folder_of_this_name(self, multihead: Multihead) -> None:
        said = multihead("measure", "nowhere", "-o", "run")
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(
            "multihead: there is no model folder nowhere\n\nhint: MODEL is a folder, minilm,"
        )


class TestFunction:
    def test_model_and_tokenizer(self, here: Path, multihead: Multihead) -> None:
        said = multihead("measure", "some_models:both", "-o", "run", "--limit", "3", "--no-kinds", "--json")
        assert said.code == 0, said.err
        assert "3 documents" in said.err
        assert (here / "run" / "table.json").is_file()

    def test_model_alone_is_given_ids(self, here: Path, multihead: Multihead) -> None:
        (here / "ids.json").write_text(json.dumps([[5, 6, 7, 5, 6], [8, 9]]))
        before = list(sys.path)
        loaded = load_model(Namespace(model="some_models:alone"))
        assert sys.path == before
        assert (loaded.tokenizer, loaded.folder, loaded.name) == (None, None, "some_models:alone")
        assert not loaded.model.training
        assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}, "--dtype says so"
        assert multihead("measure", "some_models:alone", "--ids", "ids.json", "-o", "run", "--no-kinds").code == 0
        said = multihead("measure", "some_models:alone", "-o", "other")
        assert said.code == 2
        assert "some_models:alone has no tokenizer" in said.err

    def test_inside_a_class(self, here: Path) -> None:
        assert load_model(Namespace(model="some_models:Shop.inside")).tokenizer is None

    @pytest.mark.parametrize(
        ("name", "error", "hint"),
        [
            ("no_models:tiny", "there is no module no_models, which no_models:tiny names", "no_models.py in the"),
            ("some_models.inner:tiny", "there is no module some_models.inner", "installed package"),
            ("broken_models:tiny", "broken_models does not import: No module named 'module_that_nobody_has'", ""),
            ("failing_models:tiny", "failing_models does not import: RuntimeError: not today", "TRACEBACK"),
            ("some_models:tiny", "some_models has no tiny", "it has both, alone, asks, text, three"),
            ("some_models:Shop.tiny", "some_models has no Shop.tiny", ""),
            ("some_models:number", "some_models:number is an int, not a function", "def number"),
            (
                "some_models:ready",
                "some_models:ready is an EmbeddedModel, not a function",
                "return model, tokenizer",
            ),
            ("some_models:asks", "some_models:asks failed: TypeError: asks() missing 1", "without arguments"),
            ("some_models:breaks", "some_models:breaks failed: ValueError: no weights at all", "TRACEBACK"),
            (
                "some_models:text",
                "some_models:text gave a str, not a model",
                "torch.nn.Module, or (model, tokenizer)",
            ),
            ("some_models:three", "gave a tuple of EmbeddedModel, NoneType, NoneType, not a model", "Module"),
            ("some_models:odd", "gave an int as tokenizer, which cannot be called with a text", "or None"),
        ],
    )
    def test_wrong_ones(self, name: str, error: str, hint: str, here: Path, multihead: Multihead) -> None:
        said = multihead("measure", name, "-o", "run")
        assert said.code == 2
        assert error in said.err
        assert hint in said.err
        assert "Traceback" not in said.err


class TestHub:
    @pytest.fixture
    def hub(self, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
        """A hub that answers as it is told, and counts what it was asked."""
        import huggingface_hub
        from huggingface_hub import constants

        asked = SimpleNamespace(info=None, got=None, calls=[], cached=None)

        def model_info(self: Any, name: str, **options: Any) -> Any:
            asked.calls.append(("info", name, options))
            if isinstance(asked.info, Exception):
                raise asked.info
            return SimpleNamespace(sha="0" * 40)

        def snapshot(name: str, **options: Any) -> str:
            asked.calls.append(("files", name, options))
            return str(asked.got)

        def cached(name: str, file: str, **_: Any) -> Any:
            path = None if asked.cached is None else Path(asked.cached) / file
            return str(path) if path is not None and path.is_file() else None

        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(huggingface_hub.HfApi, "model_info", model_info)
        monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
        monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", cached)
        return asked

    def test_a_name_is_downloaded_without_pickles_and_code(self, hub: SimpleNamespace, given: Folders) -> None:
        hub.got = given.gpt2
        loaded = load_model(Namespace(model="some-org/tiny"))
        assert (loaded.name, loaded.folder) == ("some-org/tiny", given.gpt2)
        (_, _, info), (_, name, files) = hub.calls
        assert name == "some-org/tiny"
        assert info["timeout"] == files["etag_timeout"] == 5.0
        wanted = set(files["allow_patterns"])
        assert "*.safetensors" in wanted
        assert not {"*.bin", "*.pt", "*.py", "*"} & wanted
        load_model(Namespace(model="some-org/tiny", trust_remote_code=True))
        assert "*.py" in hub.calls[-1][2]["allow_patterns"]

    def test_what_is_in_the_cache_does_without_the_hub(
        self, hub: SimpleNamespace, given: Folders, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from huggingface_hub import constants

        hub.cached, hub.info = given.gpt2, ConnectionError("no route")
        assert model_folder("some-org/tiny") == given.gpt2
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        hub.calls.clear()
        assert model_folder("some-org/tiny") == given.gpt2
        assert not hub.calls, "HF_HUB_OFFLINE is respected"

    def test_offline_and_not_in_the_cache(self, hub: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
        from huggingface_hub import constants

        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
        with pytest.raises(
            MultiheadError, match="not in the cache of the hub, and HF_HUB_OFFLINE=1 forbids"
        ) as said:
            model_folder("some-org/tiny")
        assert "hf download some-org/tiny" in str(said.value)

    def test_what_the_hub_refuses(self, hub: SimpleNamespace) -> None:
        import httpx2
        from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError

        answer = httpx2.Response(404, request=httpx2.Request("GET", "https://hf.co"))
        hub.info = RepositoryNotFoundError("404", response=answer)
        with pytest.raises(MultiheadError, match="no folder some-org/tiny, and no model of this name on the hub"):
            model_folder("some-org/tiny")
        hub.info = GatedRepoError("403", response=answer)
        with pytest.raises(MultiheadError, match="only to those who asked for it"):
            model_folder("some-org/tiny")
        hub.info = httpx2.ConnectTimeout("too long")
        with pytest.raises(MultiheadError, match=r"the hub cannot be reached \(ConnectTimeout\)"):
            model_folder("some-org/tiny")
        hub.info = ZeroDivisionError("a bug")
        with pytest.raises(ZeroDivisionError):
            model_folder("some-org/tiny")

    def test_a_hub_that_is_not_there(self, tmp_path: Path) -> None:
        """The real library, at an address where nobody listens: one line, and soon."""
        told = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "0", "HF_HOME": str(tmp_path)}
        done = subprocess.run(
            [sys.executable, "-m", "multihead", "measure", "some-org/tiny", "-o", str(tmp_path / "run")],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            env={**os.environ, "PYTHONPATH": SOURCE, **told},
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(
            "multihead: there is no folder some-org/tiny, it is not in the cache of the hub, and the hub cannot be"
        )
        assert "Traceback" not in done.stderr


NOTHING = """
import sys
for name in ("transformers", "huggingface_hub", "tokenizers", "pandas", "matplotlib"):
    sys.modules[name] = None                                   # importing it raises ImportError
from multihead.cli import main
for words in WORDS:
    code = main(words)
    assert code == 0, (words, code)
"""


def test_embedded_needs_nothing_at_all(tmp_path: Path) -> None:
    """Reported, cut and measured where neither transformers nor the rest can be imported."""
    small = str(tmp_path / "small")
    words = [
        ["report", "embedded", "--only", "measure,kinds,cost", "--limit", "6", "-o", str(tmp_path / "page.html")],
        ["prune", "embedded", "--keep", "0.75", "--limit", "8", "--no-refit", "-o", small],
        ["measure", small, "--no-kinds", "--limit", "4", "-o", str(tmp_path / "run")],
        ["cost", "embedded", "--tokens", "96"],
    ]
    done = subprocess.run(
        [sys.executable, "-c", NOTHING.replace("WORDS", repr(words))],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": SOURCE, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "embedded" in page
    assert (tmp_path / "small" / "multihead.safetensors").is_file()
    assert (tmp_path / "small" / "vocab.txt").is_file()
    assert "induction" in done.stdout


@pytest.mark.parametrize("words", [("measure", "-o"), ("report", "-o"), ("prune", "--keep", "0.5", "-o")])
def test_models_that_a_text_is_not_enough_for(multihead: Multihead, tmp_path: Path, words: tuple[str, ...]) -> None:
    from transformers import T5Config, T5Model

    T5Model(T5Config(num_layers=1, d_model=12, d_kv=6, num_heads=2, d_ff=7, vocab_size=31)).save_pretrained(
        tmp_path / "t5"
    )
    (tmp_path / "ids.json").write_text("[[1, 2, 3], [4, 5]]")
    said = multihead(words[0], tmp_path / "t5", *words[1:], tmp_path / "out.html", "--ids", tmp_path / "ids.json")
    assert said.code == 2
    assert "t5 reads two sequences, and the command line gives it one" in said.err
    assert "(model, [{'input_ids': ..., 'decoder_input_ids': ...}]" in said.err
