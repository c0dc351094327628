"""Find out whether a model hides padding from attention, so that a batch may hold documents of different lengths.

>>> import torch
>>> from transformers import BertConfig, BertModel
>>> from multihead.corpus.padding_check import PaddingCheck
>>> config = BertConfig(hidden_size=24, num_hidden_layers=2, num_attention_heads=3, intermediate_size=19)
>>> PaddingCheck(BertModel(config).eval()).may_pad([3, 1, 4])
True
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from multihead._base.shapes import HeadOutputs
from multihead.errors import MultiheadError
from multihead.model.call import Call, Compute
from multihead.model.compiled import inner
from multihead.model.eval_mode import takes_argument
from multihead.model.forward import Forward
from multihead.model.interception import isolated
from multihead.model.sites import Key

TOKENS, PADDING = 8, 5


class PaddingCheck:
    """Answers once per model. A model that does not hide padding gets batches of one length, and `notes` say so."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model
        self.notes: list[str] = []
        self._may_pad: bool | None = None

    def may_pad(self, ids: Sequence[int]) -> bool:
        """Whether padding changes nothing for real tokens; `ids` is some document."""
        if self._may_pad is None:
            name = type(inner(self.model)).__name__
            reason = ""
            if not takes_argument(self.model, "attention_mask"):
                reason = f"{name} takes no attention_mask"
            elif _padding_changes_heads(self.model, ids[:TOKENS]):
                reason = f"{name} takes an attention_mask, but its attention depends on padding"
            self._may_pad = not reason
            self.notes += [f"{reason}: every batch has documents of one length"] if reason else []
        return self._may_pad


def _padding_changes_heads(model: nn.Module, ids: Sequence[int]) -> bool:
    """Run a document alone and with padding behind it; compare what every head puts out for the real tokens."""
    with torch.random.fork_rng(devices=[]), isolated():
        try:
            expected, heads = _heads(model, ids), _heads(model, ids, padding=PADDING)
        except (MultiheadError, RuntimeError, AssertionError):  # the first batch raises it again
            return False
    return any(_differ(expected[key], heads[key]) for key in expected.keys() & heads.keys())


def _heads(model: nn.Module, ids: Sequence[int], *, padding: int = 0) -> dict[Key, HeadOutputs]:
    """The outputs of all heads for the tokens of a document."""
    device = next((p.device for p in model.parameters()), torch.device("cpu"))
    inputs = {"input_ids": torch.tensor([[*ids, *[0] * padding]], device=device)}
    if padding:
        inputs["attention_mask"] = torch.tensor([[1] * len(ids) + [0] * padding], device=device)
    outputs: dict[Key, HeadOutputs] = {}

    def listen(call: Call, compute: Compute) -> HeadOutputs:
        out = compute()
        if out.shape[2] == len(ids) + padding:  # else the rows are not the tokens
            outputs.setdefault(call.key, out[:, :, : len(ids)].detach().clone())
        return out

    Forward(model)(inputs, listen, sharded=True, required=False)
    return outputs


def _differ(expected: HeadOutputs, heads: HeadOutputs) -> bool:
    """Whether outputs differ by more than their dtype explains."""
    if expected.shape != heads.shape:
        return False
    tolerance = max(1e-3, 16 * torch.finfo(expected.dtype).eps)
    difference, size = (expected - heads).float().norm(), expected.float().norm()
    return bool(difference > tolerance * size)
