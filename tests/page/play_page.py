"""What a learner does on the page of `multihead play`."""

from __future__ import annotations

from typing import Any

from page.conftest import Opened


def act(shown: Opened, script: str, argument: Any = None) -> None:
    """Run a script that changes something, and wait until the change is shown."""
    shown.page.evaluate(f"argument => {{ {script} }}", argument)
    shown.ready()


def set_head(shown: Opened, name: str, on: bool) -> None:
    box = shown.page.locator(f"[data-switch={name}]")
    if box.is_checked() != on:
        act(shown, "document.querySelector(`[data-switch=${argument}]`).click()", name)


def choose_head(shown: Opened, name: str) -> None:
    act(shown, "document.querySelector(`[data-head=${argument}]`).click()", name)


def choose_word(shown: Opened, token: int) -> None:
    act(shown, "document.querySelector(`.wordchip[data-i='${argument}']`).click()", token)


def write(shown: Opened, text: str) -> None:
    shown.page.fill("#text", text)
    shown.ready()


def select(shown: Opened, selector: str, value: str) -> None:
    shown.page.select_option(selector, value)
    shown.ready()


def press(shown: Opened, selector: str) -> None:
    act(shown, "document.querySelector(argument).click()", selector)
