"""Fresh Python processes that need not import torch again: forks of a server that has imported it.

The server is Python's own (multiprocessing's forkserver). It has imported torch, transformers and the other
packages that multihead imports, but nothing of multihead itself: a child runs the package from its first line.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
from pathlib import Path
from subprocess import CompletedProcess

SOURCE = str(Path(__file__).parents[1] / "src")
COMMAND = "import sys; from multihead.cli import main; sys.exit(main(sys.argv[1:]))"
"""What `python -m multihead` runs."""

_IMPORTED = [
    "torch",
    "torch.distributed.tensor",
    "scipy.stats",
    "scipy.cluster.hierarchy",
    "safetensors.torch",
    "jaxtyping",
    "rich.console",
    "rich.progress",
    "rich.table",
    "tokenizers",
    "transformers.generation.utils",
    "transformers.models.auto.modeling_auto",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.llama.modeling_llama",
    "transformers.models.mistral.modeling_mistral",
]
_servers = multiprocessing.get_context("forkserver")
_servers.set_forkserver_preload(_IMPORTED)


class Warm:
    """A running process; its standard output and error are files."""

    def __init__(self, code: str, argv: list[str], environment: dict[str, str]) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._out, self._err = (Path(self._folder.name) / name for name in ("out", "err"))
        self.process = _servers.Process(target=_main, args=(code, argv, environment, self._out, self._err))
        self.process.start()

    @property
    def stdout(self) -> str:
        return self._out.read_text() if self._out.exists() else ""

    @property
    def stderr(self) -> str:
        return self._err.read_text() if self._err.exists() else ""

    def wait(self, timeout: float = 120.0) -> CompletedProcess[str]:
        """Its end; the exit code is negative for a signal."""
        self.process.join(timeout)
        code = self.process.exitcode
        if code is None:
            self.process.kill()
            raise TimeoutError(f"still running after {timeout:.0f} s:\n{self.stdout}\n{self.stderr}")
        with self._folder:
            return CompletedProcess([], code, self.stdout, self.stderr)


def start(code: str, *argv: object, **environment: str) -> Warm:
    """Run code as `python -c` does, in the environment of this process with these changes."""
    return Warm(code, [*map(str, argv)], {**os.environ, "OMP_NUM_THREADS": "1", **environment})


def run(code: str, *argv: object, **environment: str) -> CompletedProcess[str]:
    """The same, to its end."""
    return start(code, *argv, **environment).wait()


def script(file: Path) -> str:
    """The code that runs a file as `python FILE` does."""
    path, folder = str(file), str(file.parent)
    return f"import runpy, sys; sys.path.insert(0, {folder!r}); runpy.run_path({path!r}, run_name='__main__')"


def _main(code: str, argv: list[str], environment: dict[str, str], out: Path, err: Path) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for file, descriptor in ((out, 1), (err, 2)):
        with file.open("w") as opened:
            os.dup2(opened.fileno(), descriptor)
    sys.stdout, sys.stderr = (os.fdopen(d, "w", buffering=1, closefd=False) for d in (1, 2))
    sys.argv, sys.path[:0] = ["-c", *argv], [SOURCE]
    # The server ignores Ctrl-C, and its children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
