"""The checks of one type; each holds multihead against what the model does by itself."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers.models.auto import modeling_auto

import multihead as mh
from multihead.errors import MultiheadError
from sweep import own_maps
from sweep.build import Built, NotBuilt, build, make
from sweep.compare import TOLERANCE, check_stacks, distance, part_of, same, same_map, same_tables, state_of
from sweep.inputs import FIRST_ID, LAST_ID, Batch, parameters
from sweep.judge import NotApplicable, Verdict, Wrong, first_line, judge
from sweep.subject import Subject, quiet

IMPLEMENTATIONS = ("eager", "sdpa")
FLEX = ("llama",)  # compiling takes a minute
LENGTHS = (9, 4, 7, 5)


class Type(Subject):
    """The checks."""

    # ---- output and maps ----------------------------------------------------------------------

    def output(self, implementation: str) -> None:
        model = self.model(implementation)
        if self.random:
            raise NotApplicable("the model is random")
        outside = self.run(model)
        _, inside, _ = self.captured(model)
        if len(outside) != len(inside):
            raise Wrong(f"the output has {len(outside)} tensors outside the capture, {len(inside)} inside")
        if TOLERANCE < distance(outside, inside) < 100 * TOLERANCE:  # rounding, or a small fault: float64 tells
            model, inputs = copy.deepcopy(model).double(), _double(self.inputs)
            outside = self.run(model, inputs)
            _, inside, _ = self.captured(model, inputs)
        same(outside, inside, "output inside the capture")

    def maps(self, implementation: str) -> str:
        """The weights of every head are those that the model returns under eager."""
        model = self.model(implementation)
        if self.random:
            raise NotApplicable("the model is random")
        if not self.agrees(implementation):
            raise NotApplicable(f"the model itself does not compute the same under eager and {implementation}")
        own = self.own.innermost()
        if not own:
            raise NotApplicable("the model returns no maps")
        heads, _, _ = self.captured(model, keep="qk")
        compared = 0
        for path in dict.fromkeys(site.path for site in heads.sites):
            theirs = self._of(path, own)
            if theirs is None:
                continue
            calls = [(i, site) for site in heads.sites if site.path == path for i in range(len(heads.calls(site)))]
            if len(calls) % len(theirs):
                raise Wrong(f"{path}: {len(calls)} calls seen, the model made {len(theirs)}")
            several = len(calls) // len(
                theirs
            )  # calls for one map: each reads a part of the tokens, or of the values
            for n, (i, site) in enumerate(sorted(calls, key=lambda c: (c[0], c[1].call_index))):
                own_map = theirs[n // several]
                if own_map is None:
                    continue  # the model returns the maps of some calls only
                ours = torch.stack([heads[site.name(h)].weights(call=i).detach() for h in range(site.heads)], 1)
                part = part_of(own_map, ours, n % several, several)
                same_map(ours, part, f"{site.label} ({path})")
                compared += site.heads
        if not compared:
            raise NotApplicable("no attention both seen and returned by the model")
        return f"{compared} maps"

    @staticmethod
    def _of(path: str, own: dict[str, list[Tensor | None]]) -> list[Tensor | None] | None:
        """The model's own maps of a site: of the same module, or of the only one around or inside it."""
        if path in own:
            return own[path]
        near = [p for p in own if own_maps.inside(path, p) or own_maps.inside(p, path)]
        return own[near[0]] if len(near) == 1 else None

    def seen(self) -> str:
        """Attentions that ran and are not in the capture are named in a warning."""
        model = self.model()
        heads, _, texts = self.captured(model)
        paths = [site.path for site in heads.sites]
        missing: list[str] = []
        candidates = {**self.own.attentions(), **dict.fromkeys(self.own.innermost(), "")}
        for path in candidates:
            if not any(own_maps.inside(path, p) or own_maps.inside(p, path) for p in paths):
                missing.append(path)
        named = [p for p in missing if any(p in text or _numberless(p) in text for text in texts)]
        silent = [p for p in missing if p not in named]
        about = any("not seen" in text for text in texts)
        if silent and not (about and named):
            kinds = sorted({type(model.get_submodule(p)).__name__ for p in silent})
            share = f"{len(silent)} of {len(silent) + len(paths)} attentions"
            raise Wrong(f"{share} missing without a warning: {', '.join(kinds)} ({silent[0]})")
        return f"{len(paths)} seen, {len(missing)} named as not seen"

    # ---- trace --------------------------------------------------------------------------------

    def trace(self) -> None:
        for implementation in IMPLEMENTATIONS:
            try:
                model = self.model(implementation)
            except NotApplicable:
                continue
            before, bits = state_of(model), self.run(model)
            error: MultiheadError | None = None
            try:
                self.captured(model, keep="qk")
            except MultiheadError as refusal:
                error = refusal
            except Exception:
                pass  # `output` has it
            after = state_of(model)
            for name in before:
                if before[name] != after[name]:
                    raise Wrong(f"{implementation}: {name} differs after the capture")
            if not self.random and distance(bits, self.run(model)) != 0:
                raise Wrong(f"{implementation}: other bits after the capture")
            if error is not None:
                raise error

    # ---- names --------------------------------------------------------------------------------

    def names(self) -> str:
        first, _, _ = self.captured(self.model())
        names = {site.key: site.label for site in first.sites}
        if len(set(names.values())) != len(names):
            raise Wrong("two attentions have one name")
        check_stacks(list(first.sites))
        model = self.built.model()
        for part in self._parts(model):
            with quiet():
                try:
                    with mh.capture(model) as some, torch.no_grad():
                        part()
                except Exception:
                    continue
            for site in some.sites:
                if site.key in names and names[site.key] != site.label:
                    raise Wrong(f"{site.path} is {site.label} in a run of a part, {names[site.key]} in the whole")
        again, _, _ = self.captured(model)
        for site in again.sites:
            if names.get(site.key) != site.label:
                raise Wrong(f"{site.path} is {names.get(site.key)} at first, {site.label} after other runs")
        for site in first.sites:
            self._check_cross(first, site)
        return f"{len(names)} names"

    def _parts(self, model: Any) -> Iterator[Callable[[], Any]]:
        """Runs of a part of the model: the encoder alone, one tower alone."""
        inputs = self.inputs
        words = {k: v for k, v in inputs.items() if k in ("input_ids", "attention_mask")}
        if "decoder_input_ids" in inputs or "decoder_input_ids" in parameters(model):
            media = {k: v for k, v in inputs.items() if not k.startswith("decoder")}
            yield lambda: model.get_encoder()(**media)
        if words and hasattr(model, "get_text_features"):
            yield lambda: model.get_text_features(**words)
        media = {k: v for k, v in inputs.items() if k not in words}
        if media:
            for name in ("get_image_features", "get_audio_features", "get_video_features"):
                if hasattr(model, name):
                    yield lambda name=name: getattr(model, name)(**media)
        if words and len(words) < len(inputs):
            yield lambda: model(**words)

    def _check_cross(self, heads: Any, site: Any) -> None:
        own = self.own
        maps = self._of(site.path, own.innermost())
        memory = next(
            (
                n
                for p, n in own.memory.items()
                if own_maps.inside(site.path, p)
                and not any(o != p and own_maps.inside(o, p) and own_maps.inside(site.path, o) for o in own.memory)
            ),
            None,
        )
        first = next((x for x in maps or () if x is not None), None)
        if first is None:
            return
        queries, keys = first.shape[2:]
        if memory is not None and keys == memory != queries and not site.cross:
            raise Wrong(f"{site.path} reads {keys} keys of another sequence, and is not called cross")
        if memory is None and queries == keys and site.cross:
            raise Wrong(f"{site.path} reads its own {keys} keys, and is called cross")

    # ---- padding ------------------------------------------------------------------------------

    def documents(self) -> list[list[int]]:
        generator = torch.Generator().manual_seed(4)
        return [torch.randint(FIRST_ID, LAST_ID, (n,), generator=generator).tolist() for n in LENGTHS]

    def padding(self) -> None:
        """Statistics do not depend on the batch: documents alone and together; batches of the caller likewise."""
        if not self.takes_ids:
            raise NotApplicable("the model needs more than text")
        model, documents = self.model(), self.documents()
        if self.random:
            raise NotApplicable("the model is random")
        with quiet():
            if "decoder_input_ids" in self.inputs:
                together = self._padded("right")
                rows = [{k: v[i : i + 1] for k, v in together.items()} for i in range(len(LENGTHS))]
                for row, length in zip(rows, LENGTHS, strict=True):
                    row |= {k: row[k][:, :length] for k in ("input_ids", "attention_mask")}
                outputs = [self.run(model, row)[0] for row in rows]
                if distance([torch.cat(outputs)], self.run(model, together)[:1]) > 1e-3:
                    raise NotApplicable("the output of the model itself depends on padding")
                tables = mh.measure(model, rows), mh.measure(model, [together])
            else:
                tables = tuple(mh.measure(model, documents, batch_size=size) for size in (1, 4))
        same_tables(*tables)

    def masks(self) -> str:
        """Padding on either side: the entropies of the real rows are those of the model's own maps."""
        if "attention_mask" not in self.inputs or not self.takes_ids:
            raise NotApplicable("the model takes no attention_mask with text")
        if self.random:
            raise NotApplicable("the model is random")
        eager, checked = self.model("eager"), 0
        for side in ("right", "left"):
            batch = self._padded(side)
            try:
                with own_maps.watched(eager) as own:
                    self.run(eager, batch)
            except Exception as error:
                raise NotApplicable(f"the model itself fails with padding: {first_line(error)}") from error
            maps_of = own.innermost()
            for implementation in IMPLEMENTATIONS:
                try:
                    model = self.model(implementation)
                except NotApplicable:
                    continue
                if not self.agrees(implementation):
                    continue
                heads, _, _ = self.captured(model, batch)
                for site in heads.sites:
                    maps = self._of(site.path, maps_of)
                    real = batch["attention_mask"].bool()
                    own_map = maps[0] if maps is not None and len(maps) == 1 else None
                    if own_map is None or (own_map.shape[0], *own_map.shape[2:]) != (*real.shape, real.shape[1]):
                        continue
                    p = own_map.double()
                    sums = p.sum(-1, keepdim=True)
                    p = p / sums.clamp_min(1e-30)  # without the share of a sink
                    entropy = -(p * p.clamp_min(1e-30).log()).sum(-1)  # batch, head, query
                    theirs = torch.stack([entropy[:, h][real].mean() for h in range(entropy.shape[1])])
                    ours = torch.tensor([heads[site.name(h)].mean("entropy") for h in range(site.heads)]).double()
                    apart = float((ours - theirs).abs().max())
                    if not apart <= 1e-3:
                        raise Wrong(
                            f"{implementation}, padded on the {side}: entropy of {site.label} off by {apart:.2g}"
                        )
                    checked += 1
        if not checked:
            raise NotApplicable("the model returns no maps for a padded batch")
        return f"{checked} attentions"

    def _padded(self, side: str) -> Batch:
        documents, longest = self.documents(), max(LENGTHS)
        config = self.built.config
        pad = getattr(config, "pad_token_id", None)
        pad = pad if isinstance(pad, int) and pad >= 0 else 1
        rows, masks = [], []
        for ids in documents:
            fill = longest - len(ids)
            rows.append([*ids, *[pad] * fill] if side == "right" else [*[pad] * fill, *ids])
            masks.append([*[1] * len(ids), *[0] * fill] if side == "right" else [*[0] * fill, *[1] * len(ids)])
        batch = {"input_ids": torch.tensor(rows), "attention_mask": torch.tensor(masks)}
        if "decoder_input_ids" in self.inputs:
            words = self.inputs["decoder_input_ids"]
            batch["decoder_input_ids"] = words[torch.arange(len(documents)) % words.shape[0]]
        return batch

    # ---- labels -------------------------------------------------------------------------------

    def labels(self) -> None:
        """With labels in the batch nothing changes."""
        cls = _labelled(self.built)
        if cls is None:
            raise NotApplicable("no class of this type takes labels for its text")
        if self.random:
            raise NotApplicable("the model is random")
        try:
            model = make(cls, self.built.config)
            ids = self.inputs["decoder_input_ids" if "decoder_input_ids" in self.inputs else "input_ids"]
            batch = self.inputs | {"labels": ids.clone()}
            outside = self.run(model, batch)
        except Exception as error:
            raise NotApplicable(f"the model itself does not run with labels: {first_line(error)}") from error
        _, inside, _ = self.captured(model, batch)
        same(outside, inside, "output with labels")
        with quiet():
            same_tables(mh.measure(model, [self.inputs]), mh.measure(model, [batch]))

    # ---- anatomy and cut ----------------------------------------------------------------------

    def anatomy(self) -> str:
        """W_O of a head set to zero does what ablating the head does."""
        model = copy.deepcopy(self.model())
        if self.random:
            raise NotApplicable("the model is random")
        heads, _, _ = self.captured(model)
        with quiet() as texts:
            found = mh.anatomy(model, self.inputs)
        missing = [site.label for site in heads.sites if site.key not in {layer.site.key for layer in found}]
        if missing and not any("not seen" in text for text in texts):
            raise Wrong(f"anatomy lacks {', '.join(missing)}")
        names = self._one_per_layer(heads)
        with torch.no_grad(), quiet():
            with mh.ablate(model, names, sites=heads.sites):
                ablated = self.run(model)
            for name in names:
                found[name].W_O.zero_()
            zeroed = self.run(model)
        same(ablated, zeroed, "W_O = 0 against ablation")
        return f"{len(found)} attentions"

    @staticmethod
    def _one_per_layer(heads: Any) -> list[str]:
        """A head of every attention; of an attention that is used several times, the same one."""
        return [site.name((sum(map(ord, site.path)) % 7) % site.heads) for site in heads.sites]

    def cut(self) -> str:
        model = self.model()
        if self.random:
            raise NotApplicable("the model is random")
        with quiet():
            heads, _, _ = self.captured(model)
            names = [n for n, site in zip(self._one_per_layer(heads), heads.sites, strict=True) if site.heads > 1]
            if not names:
                raise NotApplicable("no layer has two heads")
            uses = {heads[name].site.path: name for name in reversed(names)}  # a layer used twice is cut once
            plan = mh.plan(model, [self.inputs], remove=list(reversed(uses.values())))
            small = mh.cut(model, plan, refit=False)
            with mh.ablate(model, names, sites=heads.sites):
                ablated = self.run(model)
            after = self.run(small)
        same(*(_without_maps(x) for x in (ablated, after)), "cut against ablation")
        return f"{len(names)} heads"

    def refit(self) -> str:
        """A layer that loses all its heads, with the rest fitted: finite, or refused."""
        if not self.takes_ids or "decoder_input_ids" in self.inputs:
            raise NotApplicable("the model needs more than text")
        generator = torch.Generator().manual_seed(5)
        texts = torch.randint(FIRST_ID, LAST_ID, (32, 24), generator=generator).tolist()
        with quiet():
            heads, _, _ = self.captured(self.model())
            last = heads.sites[len(heads.sites) - 1]
            plan = mh.plan(self.model(), texts, remove=[last.name(h) for h in range(last.heads)])
            small = mh.cut(self.model(), plan)
            output = self.run(small)
        if not all(bool(torch.isfinite(x).all()) for x in output):
            raise Wrong("the cut model's output is not finite")
        return f"all {last.heads} heads of {last.label}"

    # ---- missing inputs -----------------------------------------------------------------------

    def missing(self) -> str:
        """A model that needs pictures says so when it is given ids alone."""
        needed = [
            n
            for n in self.inputs
            if n not in ("input_ids", "attention_mask", "decoder_input_ids", "decoder_attention_mask")
        ]
        model = self.model()
        if "input_ids" not in parameters(model) or not needed:
            raise NotApplicable("text is enough" if not needed else "the model takes no text")
        try:
            self.run(model, {"input_ids": self.inputs.get("input_ids", torch.tensor([self.documents()[0]]))})
        except Exception:
            pass
        else:
            raise NotApplicable("the model runs on text alone")
        try:
            with quiet():
                mh.measure(model, self.documents(), batch_size=1)
        except MultiheadError as error:
            if not any(name in str(error) for name in needed):
                raise  # a refusal, but not a helpful one
            return first_line(error)
        raise Wrong("no error")


def _double(inputs: Batch) -> Batch:
    return {n: x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for n, x in inputs.items()}


def _without_maps(output: list[Tensor]) -> list[Tensor]:
    """The tensors of an output but for attention maps: those of a cut model have fewer heads."""
    return [x for x in output if not own_maps.is_map(x)]


def _numberless(path: str) -> str:
    """`layers.*.attn` for `layers.3.attn`."""
    return ".".join("*" if part.isdigit() else part for part in path.split("."))


def _labelled(built: Built) -> Any:
    if "input_ids" not in built.inputs:
        return None
    if "labels" in parameters(built.cls):  # type: ignore[arg-type]
        return built.cls
    mappings = ["CAUSAL_LM", "MASKED_LM", "IMAGE_TEXT_TO_TEXT", "PRETRAINING"]
    seq2seq = "decoder_input_ids" in built.inputs
    for mapping in ["SEQ_TO_SEQ_CAUSAL_LM", *mappings] if seq2seq else mappings:
        name = getattr(modeling_auto, f"MODEL_FOR_{mapping}_MAPPING_NAMES").get(built.model_type)
        name = name[0] if isinstance(name, tuple) else name
        cls = getattr(transformers, name, None) if name else None
        if cls is not None and "labels" in parameters(cls):
            return cls
    return None


CHECKS: dict[str, Callable[[Type], str | None]] = {
    "output eager": lambda t: t.output("eager"),
    "output sdpa": lambda t: t.output("sdpa"),
    "output flex": lambda t: t.output("flex_attention"),
    "trace": Type.trace,
    "maps eager": lambda t: t.maps("eager"),
    "maps sdpa": lambda t: t.maps("sdpa"),
    "seen": Type.seen,
    "padding": Type.padding,
    "masks": Type.masks,
    "labels": Type.labels,
    "names": Type.names,
    "anatomy": Type.anatomy,
    "cut": Type.cut,
    "refit": Type.refit,
    "missing": Type.missing,
}


def sweep(model_type: str, checks: list[str] | None = None) -> dict[str, Any]:
    """The verdicts of one type, as plain data."""
    start = time.perf_counter()
    result: dict[str, Any] = {"type": model_type}
    try:
        built = build(model_type)
    except NotBuilt as reason:
        return result | {"unbuilt": str(reason)[:1000], "seconds": round(time.perf_counter() - start, 1)}
    subject = Type(built)
    result |= {
        "class": built.cls.__name__,
        "sizes": built.sizes,
        "inputs": {k: list(v.shape) for k, v in built.inputs.items() if isinstance(v, Tensor)},
    }
    if not has_attention(subject):
        return result | {"unbuilt": "no attention", "seconds": round(time.perf_counter() - start, 1)}
    verdicts: dict[str, list[str]] = {}
    for name, check in CHECKS.items():
        if checks and name not in checks:
            continue
        if name == "output flex" and model_type not in FLEX:
            continue
        if name in ("cut", "refit") and verdicts.get("anatomy", [""])[0] not in ("right", ""):
            verdicts[name] = ["n.a.", "no anatomy"]
            continue
        verdict: Verdict = judge(lambda check=check: check(subject))
        verdicts[name] = [verdict.verdict, verdict.detail]
    return result | {"checks": verdicts, "seconds": round(time.perf_counter() - start, 1)}


def has_attention(subject: Type) -> bool:
    try:
        if subject.own.innermost() or subject.own.attentions():
            return True
        heads, _, _ = subject.captured(subject.model())
    except NotApplicable:
        return True
    except Exception:
        return False
    return len(heads.sites) > 0
