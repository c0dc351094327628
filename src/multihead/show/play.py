"""`mh.play()`: the embedded model in one page that runs it, with a switch on every head."""

from __future__ import annotations

import json
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import torch

from multihead import __version__
from multihead._base.arguments import check_path
from multihead._base.atomic_files import check_new, check_writable
from multihead._base.charts import page_style
from multihead.show.encode import deflated, halves_text
from multihead.show.kind_texts import KINDS
from multihead.show.page_file import fill_page, page_part, save_page
from multihead.sources.embedded import FOLDER
from multihead.sources.embedded.embedded import embedded

SAMPLES = 20
"""Sample texts in the page, over which it measures the loss."""

INLINE_HEIGHT = 900
"""Pixels of the page inside a notebook."""


def play(path: str | Path | None = None, *, force: bool = False) -> PlayPage:
    """Return the embedded model as one page that runs it: type words, switch heads off, follow every number.

    Args:
        path: the HTML file to write; if None, none is written.
        force: overwrite an existing file.

    Returns:
        A `PlayPage`, which shows inline in a notebook: `page.html()`, `page.save(path)`.

    Raises:
        MultiheadError: if the file exists or cannot be written.

    >>> import multihead as mh
    >>> len(mh.play().html()) < 1.5e6  # one page, without network
    True
    """
    page = PlayPage()
    if path is not None:
        check_path("path", path, hint="path='play.html'")
        check_new(Path(path), force)
        check_writable(Path(path), least=2e6)
        page.save(path)
    return page


class PlayPage:
    """The page. A notebook shows it inline."""

    @cached_property
    def _html(self) -> str:
        return _page()

    def html(self) -> str:
        return self._html

    def save(self, path: str | Path) -> Path:
        """Write the page as one HTML file, completely or not at all; returns its path."""
        return save_page(self.html(), path)

    def __repr__(self) -> str:
        heads = len(_card()["kinds"])
        return f"the embedded model as a page: {heads} heads, {len(self.html()) / 1e6:.1f} MB"

    def _repr_html_(self) -> str:
        """The play page in a sandboxed frame, which can run its script and nothing else."""
        return (
            f'<iframe srcdoc="{escape(self.html())}" sandbox="allow-scripts" title="the embedded model" '
            f'style="width: 100%; height: {INLINE_HEIGHT}px; border: 1px solid #8886"></iframe>'
        )


def _page() -> str:
    """The page of `mh.play()`."""
    model, tokenizer = embedded()
    weights = {name: x for name, x in model.state_dict().items() if name != "guess.weight"}  # is words.weight
    config = model.config
    data: dict[str, Any] = {
        "version": __version__,
        "charts": page_style(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "sizes": {
            "words": config.vocab_size,
            "width": config.width,
            "layers": config.layers,
            "heads": config.heads,
            "headDim": config.head_dim,
            "hidden": config.hidden,
            "rotaryDim": config.rotary_dim,
            "rotaryBase": config.rotary_base,
        },
        "words": tokenizer.words,
        "special": tokenizer.all_special_tokens,
        "context": _card()["recipe"]["tokens"],
        "samples": tokenizer.sample_texts()[:SAMPLES],
        "layout": [[name, x.numel()] for name, x in weights.items()],
        "card": _page_card(),
    }
    return fill_page(
        page_part("app/play/page.html"),
        script=page_part("bundles/play.js"),
        style="".join(page_part(f"app/{name}.css") for name in ("style", "switches", "play/play")),
        data=deflated(json.dumps(data, separators=(",", ":"), allow_nan=False).encode()),
        lines=halves_text(torch.cat([x.flatten() for x in weights.values()])[None]),
    )


# ---- the model card ---------------------------------------------------------------------------


def _card() -> dict[str, Any]:
    return json.loads((FOLDER / "card.json").read_text(encoding="utf-8"))


def _of_words(meaning: str) -> str:
    """The meaning of a kind for this model: its tokens are words, and its delimiters are marks."""
    return meaning.replace("[SEP] or ", "").replace("token", "word")


def _page_card() -> dict[str, Any]:
    """Jobs of heads for the play page, as measured after training. Lessons name heads by these alone."""
    card = _card()
    kinds = {head: row["kind"] for head, row in card["kinds"].items()}
    return {
        "kinds": kinds,
        "meanings": {head: _of_words(KINDS[kind].sentence) for head, kind in kinds.items() if kind in KINDS},
        "heads": {kind: row["heads"] for kind, row in card["by kind"].items()},
        "agreement": card["pointing"]["head"],
        "marks": card["marking"]["head"],
    }
