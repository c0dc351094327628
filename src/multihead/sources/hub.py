"""Models on the Hugging Face hub: their names, and the folder that one is downloaded to.

>>> from multihead.sources.hub import is_hub_name
>>> is_hub_name("openai-community/gpt2"), is_hub_name("./gpt2"), is_hub_name("gpt2")
(True, False, False)
"""

from __future__ import annotations

import re
from pathlib import Path

from multihead.errors import MultiheadError

WAIT = 5.0
"""Seconds for the hub to answer."""

_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.tiktoken", "*.jinja")
_EXCLUDED = ("original/*", "onnx/*", "openvino/*", "coreml/*", "consolidated*", "*/checkpoint*/*")
"""The same weights in other formats."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_HTTP_LIBRARIES = ("httpx", "httpx2", "httpcore", "requests", "urllib3")


def is_hub_name(name: str) -> bool:
    """Whether a name has the form org/name."""
    return _NAME.fullmatch(name) is not None and ".." not in name and "--" not in name


def download(name: str, *, code: bool = False) -> Path:
    """The folder in the cache that holds a model of the hub, updated if the hub answers.

    Weights are downloaded as safetensors only, Python files only with `code`.
    """
    try:
        import huggingface_hub as hub
        from huggingface_hub import constants
        from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError
    except ImportError as error:
        raise MultiheadError(
            f"there is no folder {name}, and huggingface_hub, which downloads models, is not installed",
            hint="pip install 'multihead[hf]', or use embedded, which needs no other package",
        ) from error
    if constants.HF_HUB_OFFLINE:
        return _cached(name, "HF_HUB_OFFLINE=1 disables downloads")
    try:
        revision = hub.HfApi().model_info(name, timeout=WAIT).sha
        folder = hub.snapshot_download(
            name,
            revision=revision,
            etag_timeout=WAIT,
            allow_patterns=[*_FILES, *(["*.py"] if code else [])],
            ignore_patterns=list(_EXCLUDED),
        )
    except GatedRepoError as error:
        raise MultiheadError(
            f"{name} is a gated model: request access first", hint=f"https://hf.co/{name}, then: hf auth login"
        ) from error
    except RepositoryNotFoundError as error:
        raise MultiheadError(
            f"there is no folder {name}, and no model of this name on the hub",
            hint="check the spelling; private models need: hf auth login",
        ) from error
    except Exception as error:  # the HTTP library differs between versions of huggingface_hub
        of_http = type(error).__module__.split(".")[0] in _HTTP_LIBRARIES
        if not of_http and not isinstance(error, OSError | RuntimeError | ValueError | HfHubHTTPError):
            raise
        return _cached(name, f"the hub cannot be reached ({type(error).__name__})", error)
    return Path(folder)


def _cached(name: str, reason: str, cause: Exception | None = None) -> Path:
    """The folder of an earlier download from the hub."""
    from huggingface_hub import try_to_load_from_cache

    for file in ("multihead.json", "config.json"):
        path = try_to_load_from_cache(name, file)
        if isinstance(path, str):
            return Path(path).parent
    raise MultiheadError(
        f"there is no folder {name}, it is not in the cache of the hub, and {reason}",
        hint=f"on a machine with a network: hf download {name}; embedded and minilm need none",
    ) from cause
