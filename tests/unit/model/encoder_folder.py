"""A small encoder in a folder of sentence-transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModel, BertConfig, BertModel


def encoder_folder(path: Path, settings: dict[str, Any] | str | None) -> BertModel:
    """The encoder, loaded from the folder; `settings` are those of its pooling module."""
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 2, "num_attention_heads": 3, "hidden_size": 21, "intermediate_size": 23}
    model = BertModel(BertConfig(**sizes, vocab_size=53, initializer_range=0.3), add_pooling_layer=False)
    model.save_pretrained(path)
    modules = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
    modules.append({"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"})
    (path / "modules.json").write_text(json.dumps(modules))
    if settings is not None:
        (path / "1_Pooling").mkdir()
        text = settings if isinstance(settings, str) else json.dumps(settings)
        (path / "1_Pooling" / "config.json").write_text(text)
    return AutoModel.from_pretrained(path, add_pooling_layer=False).eval()
