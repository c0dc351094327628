"""`multihead play` without a mouse: names for screen readers, lessons by keyboard and by finger, no stutter."""

from __future__ import annotations

from pathlib import Path

import multihead as mh
from page.conftest import Open, Opened

HEAD = "L1H3"
LATENCY = 100
"""Milliseconds from a key to its frame that nobody notices; the machine of the tests may be busy."""


def test_every_control_has_a_name(play_file: Path, opened: Open) -> None:
    shown = opened(play_file, "lesson=merge&merge=1&scale=L0H1:0.5")
    protocol = shown.page.context.new_cdp_session(shown.page)
    names: dict[str, list[str]] = {}
    for node in protocol.send("Accessibility.getFullAXTree")["nodes"]:
        focusable = any(p["name"] == "focusable" and p["value"].get("value") for p in node.get("properties", []))
        if not node.get("ignored") and focusable:
            names.setdefault(node["role"]["value"], []).append(node.get("name", {}).get("value", "").strip())
    assert len(names["slider"]) > 40
    assert all(name for group in names.values() for name in group), names
    for role in ("checkbox", "combobox"):
        assert len(set(names[role])) == len(names[role]), f"two {role}es of one name"
    assert any(name.startswith("keys, next word") for name in names["button"]), "words with their prediction"


def _tab_to(shown: Opened, selector: str, key: str = "Tab") -> None:
    for _ in range(120):
        shown.page.keyboard.press(key)
        if shown.page.evaluate("s => document.activeElement.matches(s)", selector):
            return
    raise AssertionError(f"{selector} is not reached with {key}")


def test_a_lesson_by_keyboard(play_file: Path, opened: Open) -> None:
    shown = opened(play_file)
    _tab_to(shown, ".lesson button.primary")
    shown.press("Enter")
    assert shown.page.evaluate("document.activeElement.className") == "lesson"
    _tab_to(shown, f"[data-head={HEAD}]")
    shown.press("Enter")
    _tab_to(shown, f"[data-switch={HEAD}]")
    shown.press("Space")
    shown.press("Space")
    assert shown.page.locator(".lessonsteps li.done").count() == 2
    _tab_to(shown, "#text", "Shift+Tab")
    shown.page.keyboard.press("Control+Home")
    for _ in "<now> <town> the keys":
        shown.page.keyboard.press("ArrowRight")
    shown.press("Backspace")
    assert "Done." in shown.text(".learned")
    _tab_to(shown, "[data-lesson=merge]", "Shift+Tab")
    shown.press("Enter")
    _tab_to(shown, "[data-merge='1']")
    shown.press("Space")
    assert shown.page.locator(".lessonsteps li.done").count() == 1
    _tab_to(shown, "[data-share='2']")
    shown.press("ArrowDown")
    assert shown.page.evaluate("multihead.session.settings[2].kvHeads") == 2
    _tab_to(shown, "[data-scale=L2H0]")
    shown.press("ArrowLeft")
    assert shown.page.evaluate("multihead.session.settings[2].heads[0].scale") == 0.95
    _tab_to(shown, ".help")
    shown.page.keyboard.press("Enter")
    assert len(shown.text("#definition")) > 20
    shown.page.keyboard.press("Escape")
    assert shown.page.is_hidden("#definition")


def test_a_lesson_by_finger(play_file: Path, opened: Open) -> None:
    shown = opened(play_file, width=360, height=740, has_touch=True, is_mobile=True)

    def tap(selector: str) -> None:
        shown.page.evaluate("document.body.removeAttribute('data-ready')")
        shown.page.tap(selector)
        shown.ready()

    tap("[data-lesson=redundancy]")
    for head in range(4):
        tap(f"[data-switch=L1H{head}]")
    tap("[data-switch=L1H0]")
    tap("[data-switch=L1H1]")
    shown.page.wait_for_selector(".learned")
    tap("#undo")
    tap("#reset")
    cells = shown.page.locator(".headcard canvas.cells").first
    cells.tap()
    assert shown.text("#readout b").startswith("q[")
    assert shown.page.evaluate("getComputedStyle(document.querySelector('canvas.map')).touchAction") == "pan-y"


def test_typing_does_not_stutter(play_file: Path, opened: Open) -> None:
    """60 words, in the lesson that computes most, with every key measured from the event to the frame after it."""
    shown = opened(play_file, "lesson=merge&merge=1&scale=L0H1:0.5")
    shown.page.fill("#text", " ".join(mh.embedded()[1].sample_texts()[0].split()[:54]))
    shown.ready()
    shown.page.wait_for_timeout(1000)  # the loss is measured meanwhile
    shown.page.evaluate("""() => {
      window.latencies = [];
      document.getElementById("text").addEventListener("keydown", () => {
        const began = performance.now();
        requestAnimationFrame(() => setTimeout(() => latencies.push(performance.now() - began)));
      });
    }""")
    shown.page.focus("#text")
    shown.page.keyboard.press("Control+End")
    shown.page.keyboard.type(" the ships that the woman", delay=80)
    latencies = sorted(shown.page.evaluate("latencies"))
    assert len(latencies) > 20
    assert latencies[len(latencies) // 2] < LATENCY, latencies
