"""The small trained model inside the package: network, tokenizer, weights, texts. tools/embedded trains it."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent / "trained"
"""Weights, sizes, words, sample texts and the model card, written by `make embedded`."""
