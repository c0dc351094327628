"""Rotary encodings that the config of a Hugging Face model may mean."""

from __future__ import annotations

from typing import Any

from multihead.layer._rotary import Rotary


def rotary_candidates(config: Any, head_dim: int) -> list[Rotary]:
    """Both orders of the rotated pairs, with the base and dimensions that `config` names; [] if it names none.

    Configs do not say which order the model uses. Compare the candidates with a run of the model.
    """
    parameters = getattr(config, "rope_parameters", None) or {}

    def first(*names: str) -> Any:
        values = (getattr(config, name, None) for name in names)
        return next((value for value in values if value), None)

    base = parameters.get("rope_theta") or first("rope_theta", "rotary_emb_base")
    share = parameters.get("partial_rotary_factor") or first("partial_rotary_factor")
    named_dim = getattr(config, "rotary_dim", None)
    dim = named_dim or (int(head_dim * share) if share else head_dim)
    if (base is None and named_dim is None) or dim < 2 or dim % 2 or dim > head_dim:
        return []
    return [Rotary(base or 10_000.0, dim=dim, interleaved=interleaved) for interleaved in (False, True)]
