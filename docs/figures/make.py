"""Draw every picture of docs/ anew: `make figures`, or `python docs/figures/make.py [NAME ...]`.

Numbers come from three places: they are computed here with fixed seeds, they are those of a committed benchmark
(bench/results), or they lie beside this file: those of examples/choose_heads.py, and of MiniLM's heads on the
sample text of the package, which `--measure` takes anew.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch

import learn_figures
import multihead as mh
from multihead._base.charts import LINE_COLOURS as COLOURS
from multihead.corpus.read_texts import sample
from multihead.show.figure.style import COLUMN, PAGE, sheet
from multihead.show.tokens import Words
from multihead.sources.pretrained import Pretrained

HERE = Path(__file__).parent
RESULTS = HERE.parents[1] / "bench" / "results"
SENTENCE = "The cat that I saw yesterday ran away, and the dog that you saw stayed."


# ---- MiniLM, measured once --------------------------------------------------------------------


@cache
def minilm() -> Pretrained:
    return mh.load_pretrained("minilm")


@cache
def captured() -> tuple[Any, list[str]]:
    model, tokenizer = minilm().model, minilm().tokenizer
    ids = tokenizer(SENTENCE, return_tensors="pt")
    with torch.no_grad(), mh.capture(model, keep="qk") as heads:
        model(**ids)
    return heads, Words.of(ids["input_ids"][0].tolist(), tokenizer, SENTENCE).shown


COLUMNS = (
    *("entropy", "first", "distance", "kind", "kind_detail", "kind_score", "driven", "ablation_zero", "rank"),
    *("leading", "spread", "rest", "position", "word", "match"),
)


def measured() -> mh.HeadTable:
    """The kind and importance of every head of MiniLM, on the sample text: some minutes."""
    model, tokenizer = minilm().model, minilm().tokenizer
    kinds = mh.kinds(model, sample(), tokenizer=tokenizer)
    importance = mh.importance(model, sample(), tokenizer=tokenizer, method="all", replace="zero")
    whole = mh.measure(model, sample(), tokenizer=tokenizer).join(kinds.table).join(importance.table)
    return whole.select([name for name in whole.columns if name in COLUMNS])


def table() -> mh.HeadTable:
    """The same as it was measured last, in minilm.json: `--measure` measures anew."""
    return mh.HeadTable.load(HERE / "minilm.json")


# ---- pictures ---------------------------------------------------------------------------------


def grid() -> Any:
    """Every head of MiniLM; hollow: the half that `mh.plan(keep=0.5)` takes out."""
    plan = mh.plan(minilm().model, sample(), tokenizer=minilm().tokenizer, keep=0.5)
    return mh.figure.grid(table(), hollow=plan)


def entropies() -> Any:
    return mh.figure.grid(table(), "entropy")


def one_map() -> Any:
    heads, words = captured()
    return mh.figure.attention(heads["L0H2"], words)


def one_layer() -> Any:
    heads, words = captured()
    return mh.figure.layer(heads, 1, words)


def similarity() -> Any:
    return mh.figure.similarity(mh.similarity(minilm().model, sample(), tokenizer=minilm().tokenizer))


def how_many_heads() -> Any:
    """Right answers against heads: numbers of examples/choose_heads.py, in how_many_heads.json."""
    found = json.loads((HERE / "how_many_heads.json").read_text())
    heads = [int(h) for h in found["accuracy"]]
    scores = list(found["accuracy"].values())
    task = found["task"]
    with sheet(COLUMN, 2.3) as figure:
        axes = _plain(figure.add_subplot())
        axes.set_xscale("log", base=2)
        axes.plot(heads, [sum(s) / len(s) for s in scores], color=COLOURS[0], linewidth=1.5)
        for h, some in zip(heads, scores, strict=True):
            axes.plot([h] * len(some), some, "o", color=COLOURS[0], markersize=2.5)
        axes.axhline(1 / task["values"], color="#9aa3ad", linestyle=":", linewidth=0.8)
        axes.text(heads[-1], 1 / task["values"] + 0.02, "by chance", ha="right", fontsize=6, color="#5b6470")
        axes.set_xticks(heads, labels=[f"{h}\n{task['width'] // h}" for h in heads])
        axes.minorticks_off()
        axes.set_ylim(0, 1.03)
        axes.set_xlabel("heads, and the dimensions of each")
        axes.set_ylabel(f"right answers, {task['asked']} questions at once")
    return figure


def prune() -> Any:
    """What a quarter of the heads costs a small LLaMA, by the way they are chosen: bench/results/cut.json."""
    rows = [r for r in _rows("cut") if r["work"] == "stories260K/0.75"]
    original = rows[0]["numbers"]["original"]
    rows.sort(key=lambda r: -r["numbers"]["perplexity"])
    names = [r["contestant"] for r in rows]
    fitted = ["re-fit" in n and "no re-fit" not in n for n in names]
    with sheet(COLUMN, 2.2) as figure:
        axes = _plain(figure.add_subplot())
        grown = [r["numbers"]["perplexity"] - original for r in rows]
        axes.barh(names, grown, color=[COLOURS[0] if f else "#9aa3ad" for f in fitted], height=0.65)
        for at, (more, row) in enumerate(zip(grown, rows, strict=True)):
            axes.text(more + 0.03, at, f"{row['numbers']['perplexity']:.2f}", va="center", fontsize=6)
        axes.set_xlabel(f"perplexity on held-out text, above the original's {original:.2f}")
        axes.margins(x=0.12)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
    return figure


def kv_cache() -> Any:
    """Bytes of the KV cache against tokens, as `mh.cost` counts them."""
    tokens = [2**i for i in range(10, 18)]
    whole = mh.cost("llama-3-8b", tokens=tokens[0])
    with sheet(COLUMN, 2.2) as figure:
        axes = _plain(figure.add_subplot())
        for at, (kv, said) in enumerate([(32, "32: multi-head"), (8, "8: grouped-query"), (1, "1: multi-query")]):
            sizes = [mh.cost(_spec(whole, kv), tokens=n, dtype="bf16").total.cache_bytes / 1e9 for n in tokens]
            axes.plot(tokens, sizes, color=COLOURS[at], marker="os^"[at], markersize=3, linewidth=1.2, label=said)
        weights = 16.0
        axes.axhline(weights, color="#9aa3ad", linestyle=":", linewidth=0.8)
        axes.text(tokens[0], weights * 1.1, "8 billion weights in bf16", fontsize=6, color="#5b6470")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(tokens, labels=[f"{n // 1024}k" for n in tokens])
        axes.minorticks_off()
        axes.yaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axes.set_xlabel("tokens")
        axes.set_ylabel("KV cache of one sequence, GB (bf16)")
        axes.legend(title="kv heads", title_fontsize=6.5, loc="lower right")
    return figure


def fast() -> Any:
    """How much faster than the plain way: bench/results/layer.json, medians with their intervals."""
    shown = [
        ("forward 1x4096 causal", "explicit textbook", "no map in memory, 4,096 tokens\n(textbook module)"),
        ("window 256 of 8192 forward", "SDPA, dense mask", "window 256 of 8,192\n(SDPA, dense mask)"),
        ("8 documents of 256 forward core", "SDPA, dense mask", "8 packed documents\n(dense mask; core alone)"),
        ("half padding 8x512 forward", "hand-written SDPA", "half of the batch is padding\n(SDPA on all of it)"),
        ("decode core 16k float32", "SDPA enable_gqa", "decoding, 32 heads on 8, 16k keys\n(SDPA; core alone)"),
        ("dropout 0.1 forward+backward 1x4096", "hand-written SDPA", "training with dropout, 4,096 tokens\n(SDPA)"),
        ("forward 8x512", "hand-written SDPA", "nothing to save: 8 × 512, no mask\n(SDPA)"),
    ]  # fmt: skip
    by = {(r["work"], r["contestant"]): r for r in _rows("layer")}
    rows = [by[work, peer] for work, peer, _ in shown]
    with sheet(PAGE * 0.8, 2.9) as figure:
        axes = _plain(figure.add_subplot())
        at = range(len(rows))
        middle = [r["ratio"] for r in rows]
        ends = [[r["ratio"] - r["low"] for r in rows], [r["high"] - r["ratio"] for r in rows]]
        axes.barh(
            at,
            middle,
            xerr=ends,
            color=COLOURS[0],
            height=0.6,
            error_kw={"linewidth": 0.8, "ecolor": "#1b2027"},
        )
        for i, row in enumerate(rows):
            axes.text(row["high"] + 0.1, i, f"{row['ratio']:.1f}", va="center", fontsize=6.5)
        axes.set_yticks(at, labels=[said for _, _, said in shown])
        axes.invert_yaxis()
        axes.axvline(1, color="#5b6470", linewidth=0.8)
        axes.set_xlabel("times as fast (median and 95 % interval)")
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
    return figure


def entropy() -> Any:
    """The error of two forms of the same number in fp32, computed here."""
    torch.manual_seed(0)
    q, k = torch.randn(2000, 64), torch.randn(512, 64)
    sharp = [2.0**i for i in range(-2, 9)]
    errors: dict[str, list[float]] = {"lse − scale · q · (P K)": [], "−log max p + Σ p (m − s)": []}
    for factor in sharp:
        asked = factor * q
        s = asked @ k.T / 8
        p, m = s.softmax(-1), s.amax(-1)
        exact = torch.special.entr((asked.double() @ k.double().T / 8).softmax(-1)).sum(-1)
        forms = (
            s.logsumexp(-1) - (asked * (p @ k)).sum(-1) / 8,
            -p.amax(-1).log() + (p * (m[:, None] - s)).sum(-1),
        )
        for kept, form in zip(errors.values(), forms, strict=True):
            kept.append(float((form.double() - exact).abs().mean()))
    with sheet(COLUMN, 2.1) as figure:
        axes = _plain(figure.add_subplot())
        for at, (name, some) in enumerate(errors.items()):
            axes.plot(sharp, some, color=COLOURS[1 - at], marker="os"[at], markersize=3, linewidth=1.2, label=name)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xlabel("standard deviation of a row's scores")
        axes.set_ylabel("mean error of the entropy, nats")
        axes.legend()
    return figure


PICTURES: dict[str, Callable[[], Any]] = {
    "grid": grid, "entropies": entropies, "map": one_map, "layer": one_layer, "similarity": similarity,
    "how-many-heads": how_many_heads, "prune": prune, "kv-cache": kv_cache, "fast": fast, "entropy": entropy,
    **learn_figures.PICTURES,
}  # fmt: skip


def _spec(whole: Any, kv_heads: int) -> Any:
    from dataclasses import replace

    return replace(whole.specs[0], kv_heads=kv_heads)


def _rows(name: str) -> list[dict[str, Any]]:
    return json.loads((RESULTS / f"{name}.json").read_text())["rows"]


def _plain(axes: Any) -> Any:
    axes.grid(color="#dfe3e8", linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return axes


def main(names: Sequence[str] | None = None, folder: Path = HERE.parent / "images") -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(PICTURES)} (default: all)")
    parser.add_argument("--measure", action="store_true", help="measure MiniLM anew first, into minilm.json")
    args = parser.parse_args(names)
    if args.measure:
        measured().save(HERE / "minilm.json")
    for name in args.names or PICTURES:
        PICTURES[name]().savefig(folder / f"{name}.png", dpi=220)
        print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
