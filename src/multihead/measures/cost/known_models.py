"""Sizes of well-known models by name, from known_models.json.

>>> from multihead.measures.cost.known_models import find_known_model
>>> find_known_model("GPT-3").specs[0].shape
'96 heads of 128'

A row of the file has `origin`, the public file that the sizes come from, and `checked`, an independent source: a
configuration class of transformers, whose defaults a test compares with the row, or a public copy of the file.
`attention` lists the kinds of attention layers as arguments of `Spec`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from multihead.measures.cost.spec import Latent, Spec


@dataclass(frozen=True)
class KnownModel:
    """A model that has a name: its kinds of attention layers, and its maximum sequence length."""

    name: str
    specs: tuple[Spec, ...]
    context: int
    source: int | None
    """length of the encoder's sequence; None if the model has no encoder and decoder"""
    origin: str
    checked: str
    aliases: tuple[str, ...]


@cache
def known_models() -> dict[str, KnownModel]:
    """Every known model, by name."""
    text = (files("multihead.measures.cost") / "known_models.json").read_text(encoding="utf-8")
    return {name: _known_model(name, row) for name, row in json.loads(text).items()}


def find_known_model(name: str) -> KnownModel | None:
    """Look up a model by name or alias, ignoring case; spaces and underscores count as hyphens."""
    key = _key(name)
    return next((model for model in known_models().values() if key in (model.name, *model.aliases)), None)


def similar_names(name: str) -> list[str]:
    """Names that are spelt almost like this one."""
    names = [name for model in known_models().values() for name in (model.name, *model.aliases)]
    return get_close_matches(_key(name), names, n=3)


def _key(name: str) -> str:
    return name.lower().replace(" ", "-").replace("_", "-")


def _known_model(name: str, row: dict[str, Any]) -> KnownModel:
    """A known model from its row in known_models.json."""
    kinds = [kind | ({"latent": Latent(**kind["latent"])} if "latent" in kind else {}) for kind in row["attention"]]
    specs = tuple(Spec(**kind) for kind in kinds)
    aliases = tuple(row.get("aliases", ()))
    return KnownModel(name, specs, row["context"], row.get("source"), row["origin"], row["checked"], aliases)
