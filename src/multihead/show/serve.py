"""The page of a model from a server on this machine, in one call.

>>> import torch
>>> from transformers import ViTConfig, ViTForImageClassification
>>> from multihead.show.serve import serve
>>> sizes = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 3, "intermediate_size": 16}
>>> model = ViTForImageClassification(ViTConfig(**sizes, image_size=8, patch_size=4, num_labels=2)).eval()
>>> images = [{"pixel_values": torch.ones(1, 3, 8, 8)}]
>>> with serve(model, images, parts=("cost",)) as server:  # server.serve_forever() would answer
...     server.address.startswith("http://127.0.0.1:")
True
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn

from multihead.corpus.batches import Document
from multihead.corpus.documents import CachedCorpus
from multihead.show.make_report import report
from multihead.show.map_store import MapStore, window_length
from multihead.show.report_estimate import SERVED_PARTS
from multihead.show.server import Server


def serve(
    model: nn.Module,
    data: Iterable[Document] | Mapping[str, Any] | CachedCorpus,
    *,
    tokenizer: Any = None,
    context: int | None = None,
    port: int = 0,
    parts: Sequence[str] = SERVED_PARTS,
    **options: Any,
) -> Server:
    """Measure `model` over `data`, and return a server of its page: `serve_forever()` answers until `shutdown()`.

    Args:
        data: texts, lists of token ids, or batches. The page shows the first of them; a batch of a model that reads
            images, sound, vectors or two texts is such a document.
        context: tokens of a text that are shown at once; default: the positions of the model, at most 16,384.
        port: 0 chooses a free port.
        parts, options: of `mh.report`; by default fewer parts are measured.

    Returns:
        A `Server` of the standard library's kind, with `address`, `report` and `store`.

    Raises:
        MultiheadError: as `mh.report`.
        OSError: if the port is taken.
    """
    if isinstance(data, CachedCorpus):
        tokenizer = data.batching.tokenizer
    store = MapStore(model, tokenizer, max_tokens=window_length(model, context))
    measured = report(model, data, tokenizer=tokenizer, maps=store.add, parts=parts, **options)
    if measured.stopped:
        raise KeyboardInterrupt
    page = lambda: replace(measured, texts=store.texts).html(served=store.reads)
    return Server(store, page, port, report=measured)
