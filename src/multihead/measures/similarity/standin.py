"""Silence a head and let its twin speak for it: ẑ_i = E z_i + C_ij C_jj⁻¹ (z_j − E z_j), the least-squares guess.

What redundancy means in the end: if a head says nothing that another one does not say, the guess is right, and
nothing is lost without it. The means and covariances are those that the redundancy was measured with.

>>> import torch
>>> from torch import nn
>>> from multihead.measures.similarity.result import redundancy
>>> from multihead.measures.similarity.standin import stand_in
>>> model = nn.TransformerEncoder(nn.TransformerEncoderLayer(12, 3, batch_first=True), 2).eval()
>>> found = redundancy(model, [{"src": torch.randn(5, 7, 12)}])
>>> with torch.no_grad(), stand_in(model, found, [("L1H2", "L1H0")]):        # L1H0 speaks for L1H2
...     out = model(torch.randn(5, 7, 12))
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager

import torch
from torch import Tensor, nn

from multihead._base.shapes import HeadOutputs
from multihead.errors import SizeError
from multihead.measures.similarity.result import Redundancy
from multihead.model.call import Call, Run
from multihead.model.intercept import intercept
from multihead.model.known import sites_of
from multihead.model.sites import Key, find


def stand_in(model: nn.Module, found: Redundancy, pairs: Sequence[tuple[str, str]]) -> AbstractContextManager[None]:
    """Within the block the first head of each pair gives what the second one leads to expect.

    The second must have run by then: in the same layer, or in an earlier one.
    """
    sites = sites_of(model)
    keys = list(sites)
    guesses: dict[Key, list[tuple[int, Key, int, Tensor, Tensor]]] = {}
    for silent, speaker in pairs:
        (mine, i), (other, j) = find(silent, sites.values()), find(speaker, sites.values())
        if keys.index(other.key) > keys.index(mine.key) or silent == speaker:
            raise SizeError(
                f"{speaker} cannot speak for {silent}: it has not run by then",
                hint="the speaker is another head of the same layer, or one of an earlier layer",
            )
        guesses.setdefault(mine.key, []).append((i, other.key, j, *found.guess(silent, speaker)))
    wanted = {key for some in guesses.values() for _, key, *_ in some}
    said: dict[Key, HeadOutputs] = {}

    def listen(call: Call, run: Run) -> HeadOutputs:
        heads, key = run(), (call.path, call.turn)
        if key in wanted:
            said[key] = heads
        mine = guesses.get(key, ())
        if not mine:
            return heads
        made = [said[other][:, j] @ slope.to(heads) + shift.to(heads) for _, other, j, slope, shift in mine]
        at = torch.tensor([i for i, *_ in mine], device=heads.device)
        return heads.index_copy(1, at, torch.stack(made, dim=1))

    return intercept(model, listen)
