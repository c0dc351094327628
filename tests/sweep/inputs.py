"""Inputs for any model, from the signature of its forward and its config: candidates, of which one may run."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from sweep.tiny_config import VOCABULARY

Batch = dict[str, Any]
TOKENS, OUTPUT_TOKENS, ROWS = 11, 7, 2
FIRST_ID, LAST_ID = 5, 60  # ids of plain text: the special tokens of tiny_config are below and above


def ids(tokens: int = TOKENS, rows: int = ROWS, seed: int = 0) -> Tensor:
    return torch.randint(FIRST_ID, LAST_ID, (rows, tokens), generator=torch.Generator().manual_seed(seed))


def noise(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def parameters(model: nn.Module) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(model.forward).parameters)


def configs(config: Any) -> Iterator[Any]:
    """A config, then its sub-configs, depth first."""
    yield config
    for value in list(vars(config).values()):
        if hasattr(value, "to_dict") and hasattr(value, "model_type"):
            yield from configs(value)


_TOWERS = ("Vision", "Image", "Audio", "Backbone", "Swin", "ViT")


def first(config: Any, *names: str, default: Any = None) -> Any:
    """The first of these fields that the config or a sub-config has; those of towers are looked at first."""
    everything = sorted(configs(config), key=lambda c: not any(word in type(c).__name__ for word in _TOWERS))
    for name in names:
        for c in everything:
            try:
                value = getattr(c, name, None)
            except Exception:  # a field that differs between layers
                continue
            if value is not None:
                return value
    return default


def _pair(value: Any) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[-2], value[-1])


def pictures(names: dict[str, Any], config: Any) -> Iterator[Batch]:
    """Pictures in the layouts that there are: a batch, patches in a row with their grid, several a row, videos."""
    channels = first(config, "num_channels", "in_channels", "in_chans", "num_input_channels", default=3)
    channels = channels if isinstance(channels, int) else 3
    height, width = _pair(first(config, "image_size", "img_size", "input_size", "crop_size", default=32) or 32)
    patch = _pair(first(config, "patch_size", default=8))[0]
    frames = first(config, "num_frames", default=2)
    grids = [n for n in ("image_grid_thw", "grid_thw", "image_grid_hws", "grid_hws", "image_grid_hw") if n in names]
    key = "pixel_values" if "pixel_values" in names else "hidden_states" if grids else None
    if key is None:
        if "pixel_values_videos" in names:
            yield {"pixel_values_videos": noise(ROWS, frames, channels, height, width)}
        return
    if grids:
        temporal = first(config, "temporal_patch_size", default=1)
        merge = first(config, "spatial_merge_size", "merge_size", default=2)
        side = 2 * (merge if isinstance(merge, int) else 2)
        count = ROWS * side * side
        for name in grids:
            grid = [[1, side, side]] * ROWS if name.endswith("thw") else [[side, side]] * ROWS
            for pixels in (
                noise(count, channels * 2 * patch * patch),
                noise(count, channels * temporal * patch * patch),
                noise(1, count, channels * temporal * patch * patch),
                noise(count, channels * patch * patch),
                noise(count, channels, patch, patch),
                noise(1, count, channels, patch, patch),
            ):
                yield {key: pixels, name: torch.tensor(grid)}
    if "spatial_shapes" in names:
        side = 4
        yield {
            key: noise(ROWS, side * side, channels * patch * patch),
            "pixel_attention_mask": torch.ones(ROWS, side * side, dtype=torch.long),
            "spatial_shapes": torch.tensor([[side, side]] * ROWS),
        }
    if "image_sizes" in names:
        yield {key: noise(ROWS, channels, height, width), "image_sizes": torch.tensor([[height, width]] * ROWS)}
        yield {key: noise(ROWS, 3, channels, height, width), "image_sizes": torch.tensor([[height, width]] * ROWS)}
    if "image_position_ids" in names or "pixel_position_ids" in names:
        name = "image_position_ids" if "image_position_ids" in names else "pixel_position_ids"
        side = 6
        position = torch.stack(torch.meshgrid(torch.arange(side), torch.arange(side), indexing="xy"), -1).reshape(
            1, -1, 2
        )
        yield {key: noise(ROWS, side * side, channels * patch * patch), name: position.expand(ROWS, -1, -1)}
    yield {key: noise(ROWS, channels, height, width)}
    yield {key: noise(ROWS, frames, channels, height, width)}
    yield {key: noise(ROWS, 1, channels, height, width)}
    yield {key: noise(ROWS, channels, frames, height, width)}
    yield {key: noise(ROWS, channels, 64, 64)}
    yield {key: noise(ROWS, channels, 224, 224)}


_SOUNDS = ("input_features", "input_values", "audio_values", "audio", "speech", "features", "audio_features")


def sounds(names: dict[str, Any], config: Any) -> Iterator[Batch]:
    """Waves or spectrograms, in either order of axes."""
    bins = first(
        config,
        "num_mel_bins",
        "input_feat_per_channel",
        "feature_projection_input_dim",
        "n_mels",
        "input_dim",
        "input_feat_size",
        "feature_size",
        "mel_dim",
        "n_mel_bins",
        "num_mels",
        default=80,
    )
    bins = bins if isinstance(bins, int) else 80
    longest = first(config, "max_source_positions", "max_length", default=64)
    for key in _SOUNDS:
        if key not in names:
            continue
        frames = 2 * longest if isinstance(longest, int) else 128
        shapes = [
            (ROWS, bins, frames),
            (ROWS, frames // 2, bins),
            (ROWS, 128, bins),
            (ROWS, bins, 128),
            (ROWS, frames, bins),
            (ROWS, 1, bins, 128),
            (ROWS, 1, 128, bins),
            (ROWS, 1, 256, 64),
        ]
        waves = [(ROWS, 4000), (ROWS, 1, 4000), (ROWS, 1, 9600), (ROWS, 16000)]
        for shape in [*waves, *shapes] if key in ("input_values", "audio", "audio_values") else [*shapes, *waves]:
            yield {key: noise(*shape)}


def text(names: dict[str, Any], config: Any) -> Batch:
    batch: Batch = {}
    if "input_ids" in names:
        batch["input_ids"] = ids()
        if "attention_mask" in names:
            batch["attention_mask"] = torch.ones(ROWS, TOKENS, dtype=torch.long)
    if "decoder_input_ids" in names:
        batch["decoder_input_ids"] = ids(OUTPUT_TOKENS, seed=2)
    return batch


_MAIN = ("input_ids", "pixel_values", "input_features", "input_values", "attention_mask", "decoder_input_ids")


def others(names: dict[str, inspect.Parameter], config: Any) -> Iterator[Batch]:
    """Arguments without a default that are neither text, picture nor sound: by name, else vectors."""
    required = [n for n, p in names.items() if p.default is p.empty and p.kind is p.POSITIONAL_OR_KEYWORD]
    width = first(config, "hidden_size", "d_model", "n_embd", "hidden_dim", default=48)
    width = width if isinstance(width, int) else 48
    batch: Batch = {}
    for name in required:
        if name in _MAIN:
            continue
        if name in ARGUMENTS:
            batch[name] = ARGUMENTS[name](config)
        else:
            batch[name] = noise(ROWS, TOKENS, width, seed=len(batch) + 3)
    yield batch
    if "inputs_embeds" in names and "inputs_embeds" not in batch:
        yield batch | {"inputs_embeds": noise(ROWS, TOKENS, width)}


def _boxes(config: Any) -> Tensor:
    return torch.tensor([[[3, 4, 20, 25]]]).expand(ROWS, TOKENS, 4).clone()


ARGUMENTS: dict[str, Any] = {
    "bbox": _boxes,
    "past_values": lambda c: noise(ROWS, first(c, "context_length", "patch_length", default=32), 1),
    "past_time_features": lambda c: noise(ROWS, 32, 1),
    "past_observed_mask": lambda c: torch.ones(ROWS, 32),
    "attention_mask": lambda c: torch.ones(ROWS, TOKENS, dtype=torch.long),
    "visual_feats": lambda c: noise(ROWS, 5, first(c, "visual_feat_dim", default=48)),
    "visual_pos": lambda c: noise(ROWS, 5, 4).abs(),
    "qformer_input_ids": lambda c: ids(5, seed=3),
    "input_features_mask": lambda c: torch.ones(ROWS, 128, dtype=torch.long),
    "position_ids": lambda c: torch.arange(TOKENS).expand(ROWS, -1),
}  # fmt: skip


def candidates(model: nn.Module, config: Any) -> Iterator[Batch]:
    """Inputs to try, the richest first: text with pictures or sound, then each of them alone."""
    names = parameters(model)
    words = text(names, config)
    extra = {n: ARGUMENTS[n](config) for n in ("bbox", "qformer_input_ids") if n in names}
    rest = list(others(names, config))
    for media in [*pictures(names, config), *sounds(names, config)]:
        if "input_ids" in words:
            yield words | extra | media
        yield {k: v for k, v in words.items() if k.startswith("decoder")} | rest[0] | media
        yield media
    if words:
        yield words | extra | rest[0]
        yield words | extra
    yield from (r for r in rest if r)


_PLACEHOLDERS = """image_token_id image_token_index video_token_id video_token_index audio_token_id
audio_token_index media_placeholder_token_id im_patch_id image_patch_id"""


def placeholders(config: Any) -> list[int]:
    """The ids that stand for pictures and sound in a text."""
    ids = [first(config, name) for name in _PLACEHOLDERS.split()]
    return [x for x in ids if isinstance(x, int) and x < VOCABULARY]


def with_placeholders(batch: Batch, token: int, count: int, names: dict[str, Any]) -> Batch:
    """The batch with `count` placeholders in front of the text, spread over the rows."""
    each = count // ROWS
    rows = torch.full((ROWS, each), token)
    words = torch.cat([batch["input_ids"][:, :1], rows, batch["input_ids"][:, 1:]], 1)
    new = batch | {"input_ids": words}
    if "attention_mask" in batch:
        new["attention_mask"] = torch.ones_like(words)
    for name in ("mm_token_type_ids", "token_type_ids"):
        if name in names:
            new[name] = (words == token).long()
    return new
