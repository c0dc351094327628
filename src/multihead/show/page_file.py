"""A page is one HTML file: template, script and style, under a policy that allows these and nothing else."""

from __future__ import annotations

import base64
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from string import Template

from multihead._base.arguments import check_path
from multihead._base.atomic_files import write_atomically
from multihead.errors import MultiheadError


def fill_page(template: str, *, script: str, style: str, connect: str = "'none'", **parts: str) -> str:
    """The page from its template with $names filled in; its script may send requests to `connect`."""
    policy = (
        f"default-src 'none'; script-src 'sha256-{_digest(script)}'; style-src 'sha256-{_digest(style)}'; "
        f"img-src data: blob:; connect-src {connect}; base-uri 'none'; form-action 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return Template(template).substitute(policy=policy, script=script, style=style, **parts)


def save_page(html: str, path: str | Path) -> Path:
    """Write a page as one HTML file, completely or not at all; returns its path."""
    check_path("path", path, hint="path='page.html'")
    path, data = Path(path), html.encode("utf-8", errors="replace")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, data)
    except OSError as error:
        raise MultiheadError(
            f"the page ({len(data) / 1e6:.1f} MB) cannot be written to {path}: {error.strerror}",
            hint="choose a path that can be written to, on a disk with enough room",
        ) from error
    return path


def page_part(name: str) -> str:
    """A file of this folder: a template, a style or a bundle."""
    return files("multihead.show").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return base64.b64encode(sha256(text.encode()).digest()).decode()
