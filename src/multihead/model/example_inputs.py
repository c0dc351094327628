"""Build an example input from a model's signature, config and modules."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from multihead.errors import MultiheadError
from multihead.model.token_limit import learned_positions

TOKENS, OUTPUT_TOKENS = 13, 7


def example_inputs(model: nn.Module, *, tokens: int = TOKENS) -> dict[str, Any]:
    """Random ids, pixels, audio features or vectors for a batch of two, by the argument names of `model.forward`.

    Deterministic, and independent of the global random state.
    """
    if _is_torch_stack(model):
        return _for_torch(model, tokens)
    base = getattr(model, "get_base_model", None)  # a peft wrapper takes the inputs of its base model
    names = inspect.signature((model if base is None else base()).forward).parameters
    config = getattr(model, "config", None)
    tokens = min(tokens, learned_positions(model) or tokens)
    inputs: dict[str, Any] = {}
    if "input_ids" in names:
        inputs["input_ids"] = _ids(model, config, tokens)
    if "pixel_values" in names:
        inputs["pixel_values"] = _pixels(model, config)
    if "input_features" in names:
        bins = getattr(config, "num_mel_bins", 80)
        inputs["input_features"] = _normal(model, 2, bins, 2 * getattr(config, "max_source_positions", 1500))
    if "decoder_input_ids" in names and getattr(config, "is_encoder_decoder", False):
        inputs["decoder_input_ids"] = _ids(model, config, min(OUTPUT_TOKENS, tokens))
    required = [
        n
        for n, p in names.items()
        if p.default is p.empty and p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
    ]
    if not inputs and len(required) == 1 and (guess := _by_first_module(model, tokens)) is not None:
        inputs[required[0]] = guess
    if not inputs:
        raise MultiheadError(
            f"cannot build an input for {type(model).__name__}: forward takes {', '.join(names) or 'nothing'}",
            hint="run it once, with mh.capture(model) as heads: model(**batch), then pass sites=heads.sites; "
            "mh.anatomy takes inputs",
        )
    return inputs


def _by_first_module(model: nn.Module, tokens: int) -> Tensor | None:
    """An example for the first module with weights: ids (embedding), an image (convolution), or vectors."""
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            return _ids(model, getattr(model, "config", None), tokens)
        if isinstance(module, nn.Conv2d):
            return _pixels(model, model, channels=module.in_channels)
        names = ("d_model", "embed_dim", "in_features")
        width: object = next((w for n in names if (w := getattr(module, n, None))), None)
        if width is None and isinstance(module, nn.LayerNorm):
            width = module.normalized_shape[-1]
        if isinstance(width, int) and next(module.parameters(recurse=True), None) is not None:
            return _normal(model, 2, tokens, width)
    return None


def _is_torch_stack(model: nn.Module) -> bool:
    """Whether a model is one of torch's transformers, whose example inputs are vectors."""
    stacks = (nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder)
    return isinstance(
        model, (*stacks, nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.MultiheadAttention)
    )


def _for_torch(model: nn.Module, tokens: int) -> dict[str, Any]:
    """Example inputs of torch's transformers and attention."""
    attention = next(m for m in model.modules() if isinstance(m, nn.MultiheadAttention))
    shape = (2, tokens) if attention.batch_first else (tokens, 2)
    x = _normal(model, *shape, attention.embed_dim)
    if isinstance(model, nn.MultiheadAttention):
        kv = (_normal(model, *shape, attention.kdim), _normal(model, *shape, attention.vdim))
        same = attention.kdim == attention.vdim == attention.embed_dim
        return {"query": x, "key": x, "value": x} if same else {"query": x, "key": kv[0], "value": kv[1]}
    if isinstance(model, nn.Transformer):
        return {"src": x, "tgt": x.roll(1, -1)}
    if isinstance(model, nn.TransformerDecoder | nn.TransformerDecoderLayer):
        return {"tgt": x, "memory": x.roll(1, -1)}
    return {"src": x}


def _text(config: Any) -> Any:
    return getattr(config, "text_config", None) or config


def _ids(model: nn.Module, config: Any, tokens: int) -> Tensor:
    """Example token ids, neither padding nor special, as far as these are known."""
    size = getattr(_text(config), "vocab_size", None)
    if size is None:
        table = next((m for m in model.modules() if isinstance(m, nn.Embedding)), None)
        size = 2 if table is None else table.num_embeddings
    special = [getattr(_text(config), f"{n}_token_id", None) for n in ("pad", "bos", "eos")]
    low = max((s for s in special if isinstance(s, int) and s < 5), default=0) + 1
    ids = torch.randint(min(low, size - 1), size, (2, tokens), generator=torch.Generator().manual_seed(0))
    last = getattr(_text(config), "eos_token_id", None)
    if isinstance(last, int) and 0 <= last < size:
        ids[:, -1] = last  # some models pool at the end token
    return ids.to(_device(model))


def _pixels(model: nn.Module, config: Any, *, channels: int | None = None) -> Tensor:
    """Example images of the size that the config names."""
    vision = getattr(config, "vision_config", None) or config
    size = getattr(vision, "image_size", None) or getattr(vision, "img_size", 224)
    height, width = (size, size) if isinstance(size, int) else size
    return _normal(model, 2, channels or int(getattr(vision, "num_channels", 3)), height, width)


def _normal(model: nn.Module, *shape: int) -> Tensor:
    weight = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    sample = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return sample.to(device=weight.device, dtype=weight.dtype)


def _device(model: nn.Module) -> torch.device:
    return next((p.device for p in model.parameters()), torch.device("cpu"))
