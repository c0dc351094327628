"""The facts about peers in docs/compare.md hold for the versions in constraints.txt.

When a peer changes, a test here fails and the table is corrected.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib import import_module
from inspect import signature
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor, nn

transformers = import_module("transformers")
x_transformers = import_module("x_transformers.x_transformers")

BATCH, TOKENS, WIDTH = 2, 5, 12
NOTHING_FOR_THE_FIRST = torch.arange(TOKENS)[:, None].expand(TOKENS, TOKENS) > 0  # row 0 sees no key
LAST_HIDDEN = torch.arange(TOKENS) < TOKENS - 1


@pytest.fixture
def x() -> Tensor:
    return torch.randn(BATCH, TOKENS, WIDTH)


@pytest.fixture
def x_bad_last(x: Tensor) -> Tensor:
    return torch.cat([x[:, :-1], torch.full_like(x[:, -1:], torch.nan)], dim=1)


class TestTorch:
    @pytest.fixture
    def layer(self) -> nn.MultiheadAttention:
        return nn.MultiheadAttention(WIDTH, 4, batch_first=True)

    def test_no_groups_and_no_free_head_sizes(self) -> None:
        names = nn.MultiheadAttention.__init__.__code__.co_varnames
        assert not {"num_kv_heads", "kv_heads", "head_dim", "value_dim"} & set(names)
        assert {"kdim", "vdim"} <= set(names)  # own key and value input widths: yes

    def test_projections_are_packed(self, layer: nn.MultiheadAttention) -> None:
        assert {n for n, _ in layer.named_parameters()} >= {"in_proj_weight", "in_proj_bias"}

    def test_an_empty_row_is_nan_when_weights_are_asked_for(self, layer: nn.MultiheadAttention, x: Tensor) -> None:
        hidden = ~NOTHING_FOR_THE_FIRST  # this layer's True means hidden
        assert layer(x, x, x, attn_mask=hidden, need_weights=True)[0][:, 0].isnan().all()
        assert not layer(x, x, x, attn_mask=hidden, need_weights=False)[0].isnan().any()

    def test_the_causal_flag_alone_is_ignored_on_the_fast_path(
        self, layer: nn.MultiheadAttention, x: Tensor
    ) -> None:
        layer.eval()
        with torch.no_grad():
            causal = layer(x, x, x, is_causal=True, need_weights=False)[0]
            torch.testing.assert_close(causal, layer(x, x, x, need_weights=False)[0])

    def test_nan_in_a_hidden_key_spreads(self, layer: nn.MultiheadAttention, x: Tensor, x_bad_last: Tensor) -> None:
        hidden = ~LAST_HIDDEN.expand(BATCH, TOKENS)
        assert layer(x, x_bad_last, x_bad_last, key_padding_mask=hidden, need_weights=False)[0].isnan().any()


class TestXTransformers:
    def layer(self, **options: Any) -> nn.Module:
        return x_transformers.Attention(WIDTH, dim_head=4, heads=4, **options)

    def test_groups_are_even_and_tiled(self, x: Tensor) -> None:
        with pytest.raises(AssertionError):
            x_transformers.Attention(WIDTH, heads=7, kv_heads=2)
        assert self.layer(kv_heads=2)(x).shape == x.shape

    def test_value_head_size_is_free_and_there_are_no_biases(self, x: Tensor) -> None:
        layer = self.layer(value_dim_head=5)
        assert layer(x).shape == x.shape
        assert not [n for n, _ in layer.named_parameters() if "bias" in n]

    @pytest.mark.parametrize("option", ["softclamp_logits", "head_learned_sink"])
    def test_softcap_and_sinks_exclude_flash(self, option: str, x: Tensor) -> None:
        assert self.layer(**{option: True})(x).shape == x.shape
        with pytest.raises(AssertionError, match="flash"):
            self.layer(**{option: True}, flash=True)

    def test_weights_exist_without_flash_only(self, x: Tensor) -> None:
        _, asked = self.layer(flash=True)(x, return_intermediates=True)
        assert asked.post_softmax_attn is None
        _, asked = self.layer()(x, return_intermediates=True)
        assert asked.post_softmax_attn.shape == (BATCH, 4, TOKENS, TOKENS)

    def test_an_empty_row_depends_on_the_way_it_is_computed(self, x: Tensor) -> None:
        explicit, flash = self.layer(causal=True), self.layer(causal=True, flash=True)
        flash.load_state_dict(explicit.state_dict())
        real = torch.arange(TOKENS).expand(BATCH, TOKENS) > 0  # left padding: the first token sees nothing
        assert flash(x, context_mask=real)[:, 0].abs().max() == 0
        assert explicit(x, context_mask=real)[:, 0].abs().max() > 0.01

    def test_nan_in_a_hidden_key_spreads(self, x: Tensor, x_bad_last: Tensor) -> None:
        real = LAST_HIDDEN.expand(BATCH, TOKENS)
        assert self.layer(flash=True)(x, context=x_bad_last, context_mask=real).isnan().any()


class TestTorchtune:
    @pytest.fixture(autouse=True)
    def _its_attention_file_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The package as a whole does not import beside a current torchao."""
        spec = importlib.util.find_spec("torchtune")
        assert spec is not None, "torchtune is not installed: make test does that"
        assert spec.origin is not None
        for name in ("torchtune", "torchtune.modules", "torchtune.utils"):
            package = ModuleType(name)
            package.__path__ = [str(Path(spec.origin).parents[1] / name.replace(".", "/"))]
            monkeypatch.setitem(sys.modules, name, package)

    def layer(self, heads: int = 4, kv_heads: int = 2, value_dim: int = 4) -> nn.Module:
        from torchtune.modules.attention import MultiHeadAttention

        width = 4 * heads
        return MultiHeadAttention(
            embed_dim=width, num_heads=heads, num_kv_heads=kv_heads, head_dim=4, is_causal=False,
            q_proj=nn.Linear(width, 4 * heads), k_proj=nn.Linear(width, 4 * kv_heads),
            v_proj=nn.Linear(width, value_dim * kv_heads), output_proj=nn.Linear(value_dim * heads, width),
        )  # fmt: skip

    def test_groups_are_even(self) -> None:
        with pytest.raises(ValueError, match="divisible"):
            self.layer(heads=7)

    def test_value_head_size_is_the_key_head_size(self) -> None:
        x = torch.randn(BATCH, TOKENS, 16)
        assert self.layer()(x, x).shape == x.shape
        with pytest.raises(RuntimeError):
            self.layer(value_dim=5)(x, x)

    def test_an_empty_row_is_zero_before_the_output_projection(self) -> None:
        x, layer = torch.randn(BATCH, TOKENS, 16), self.layer()
        out = layer(x, x, mask=NOTHING_FOR_THE_FIRST.expand(BATCH, TOKENS, TOKENS))
        torch.testing.assert_close(out[:, 0], layer.output_proj.bias.expand(BATCH, -1))

    def test_nan_in_a_hidden_key_spreads(self) -> None:
        x = torch.randn(BATCH, TOKENS, 16)
        bad = torch.cat([x[:, :-1], torch.full_like(x[:, -1:], torch.nan)], dim=1)
        assert self.layer()(x, bad, mask=LAST_HIDDEN.expand(BATCH, TOKENS, TOKENS)).isnan().any()


class TestLlamaAttention:
    def layer(self, kind: str, heads: int = 4, kv_heads: int = 2, width: int = WIDTH) -> nn.Module:
        from transformers.models.llama.modeling_llama import LlamaAttention

        config = transformers.LlamaConfig(
            hidden_size=width, num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=4
        )
        config._attn_implementation = kind
        return LlamaAttention(config, 0)

    def run(self, layer: nn.Module, x: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        unrotated = torch.ones(1, TOKENS, 4), torch.zeros(1, TOKENS, 4)  # cos, sin
        return layer(x, unrotated, mask)

    def test_groups_are_even(self) -> None:
        with pytest.raises(RuntimeError, match="divide"):
            self.run(self.layer("sdpa", heads=7, width=28), torch.randn(BATCH, TOKENS, 28))

    def test_weights_exist_in_eager_only(self, x: Tensor) -> None:
        assert self.run(self.layer("sdpa"), x)[1] is None
        weights = self.run(self.layer("eager"), x)[1]
        assert weights is not None
        assert weights.shape == (BATCH, 4, TOKENS, TOKENS)

    def test_an_empty_row_depends_on_the_way_it_is_computed(self, x: Tensor) -> None:
        sees = NOTHING_FOR_THE_FIRST[None, None]
        lowest = torch.zeros(1, 1, TOKENS, TOKENS).masked_fill(~sees, torch.finfo(torch.float32).min)
        assert self.run(self.layer("sdpa"), x, sees)[0][:, 0].abs().max() == 0
        assert self.run(self.layer("eager"), x, lowest)[0][:, 0].abs().max() > 0.01

    def test_nan_in_a_hidden_key_spreads(self, x_bad_last: Tensor) -> None:
        sees = LAST_HIDDEN.expand(1, 1, TOKENS, TOKENS)
        assert self.run(self.layer("sdpa"), x_bad_last, sees)[0][:, :-1].isnan().any()


def test_transformers_5_neither_masks_nor_prunes_heads() -> None:
    assert int(transformers.__version__.partition(".")[0]) >= 5
    assert not hasattr(transformers.PreTrainedModel, "prune_heads")
    for name in ("BertModel", "GPT2Model", "LlamaModel"):
        asked = signature(getattr(transformers, name).forward).parameters
        assert "input_ids" in asked
        assert "head_mask" not in asked
