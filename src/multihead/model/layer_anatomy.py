"""The weights of every head of a layer, as views of the model's parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, overload

from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.plural import plural
from multihead.errors import AnatomyError
from multihead.layer import Groups
from multihead.model.head_storage import Projection, Storage
from multihead.model.sites import Site
from multihead.model.sites import find as find_site
from multihead.model.verify_weights import Proof
from multihead.table.head_names import HeadName

FoundBy = Literal["row", "finder"]

Rows = Float[Tensor, "dim width"]

Row = Float[Tensor, " dim"]


@dataclass(frozen=True)
class Head:
    """One query head with the kv head that it reads; the tensors are views of the model's parameters.

    q = x W_Qᵀ + b_Q, and the same for k and v. The head adds z W_Oᵀ to the layer's output, or with a gate
    (z · activation(x W_Gᵀ + b_G)) W_Oᵀ. In latent attention W_K and W_V read the latent vector (`LatentWeights`).
    """

    name: str
    kv_head: int
    W_Q: Float[Tensor, "key_dim d_model"]
    W_K: Float[Tensor, "_ d_key"]
    W_V: Float[Tensor, "value_dim d_value"]
    W_O: Float[Tensor, "d_out value_dim"]
    b_Q: Float[Tensor, " key_dim"] | None
    b_K: Float[Tensor, " _"] | None
    b_V: Float[Tensor, " value_dim"] | None
    W_G: Float[Tensor, "gate_dim d_gate"] | None = None
    b_G: Float[Tensor, " gate_dim"] | None = None


@dataclass(frozen=True)
class LatentWeights:
    """The weights that all heads of latent attention share (DeepSeek-V2, 2024), as views of the parameters.

    c = norm(x W_DKVᵀ + b_DKV), and k_h = [c W_Kᵀ ; R(x W_KRᵀ + b_KR)], v_h = c W_Vᵀ with W_K and W_V of the head
    (W_UK, W_UV in the paper); R rotates. W_Q of a head reads norm(x W_DQᵀ + b_DQ), or x if W_DQ is None; in
    A.X K2, it reads the vector before its norm as well.
    """

    W_DKV: Float[Tensor, "latent_dim d_model"]
    W_KR: Float[Tensor, "rope_dim d_model"]
    W_DQ: Float[Tensor, "query_dim d_model"] | None
    b_DKV: Float[Tensor, " latent_dim"] | None
    b_KR: Float[Tensor, " rope_dim"] | None
    b_DQ: Float[Tensor, " query_dim"] | None
    norms: tuple[str, ...]
    """the parameters of the norms of the latent vectors"""


@dataclass(frozen=True)
class LayerAnatomy:
    """The heads of one attention: their sizes, and where their weights are stored.

    `weights["q"]` holds the parameter, axis and indices of each head; W_Q, W_K, … are the views. W_Q and W_O
    are per query head, W_K and W_V per kv head: query head i reads kv head groups.kv_of_head[i]. Rows are in the
    order of the parameter. With a gate there are `weights["g"]` and W_G, per query head. In latent attention
    W_K and W_V are the up-projections, without the keys' rotary part, which all heads share: see `latent`.
    """

    site: Site
    module: nn.Module
    key_dim: int
    value_dim: int
    storage: Storage
    between: Mapping[str, tuple[str, ...]]
    """parameters between a projection and the kernel (norms of q and k), by letter"""
    sinks: str | None
    """the parameter of the learned sinks, one value per query head"""
    proof: Proof
    found_by: FoundBy
    parameters: Mapping[str, nn.Parameter]

    @property
    def weights(self) -> Mapping[str, Projection]:
        """The parameter, axis and indices of every head, by letter: q, k, v, o, and g if there is a gate."""
        return self.storage.projections

    @property
    def groups(self) -> Groups:
        """Which kv head each query head reads."""
        return self.storage.groups

    @property
    def path(self) -> str:
        """The module that calls the kernel."""
        return self.site.path

    @property
    def name(self) -> str:
        """`L3`, or `decoder.L3`."""
        return self.site.label

    @property
    def where(self) -> str:
        """The layer in a message: `L3 (encoder.layer.3.attention.self)`."""
        return f"{self.name} ({self.path or 'the model itself'})"

    @property
    def num_heads(self) -> int:
        return len(self.groups.kv_of_head)

    @property
    def num_kv_heads(self) -> int:
        return self.groups.kv_heads

    @property
    def W_Q(self) -> tuple[Rows, ...]:
        return self._rows("q")

    @property
    def W_K(self) -> tuple[Rows, ...]:
        return self._rows("k")

    @property
    def W_V(self) -> tuple[Rows, ...]:
        return self._rows("v")

    @property
    def b_Q(self) -> tuple[Row, ...] | None:
        return self._biases("q")

    @property
    def b_K(self) -> tuple[Row, ...] | None:
        return self._biases("k")

    @property
    def b_V(self) -> tuple[Row, ...] | None:
        return self._biases("v")

    @property
    def W_O(self) -> tuple[Float[Tensor, "d_out value_dim"], ...]:
        part = self.weights["o"]
        views = [slots.of(self.parameters[part.parameter], part.axis) for slots in part.heads]
        return tuple(w.mT if part.axis == 0 else w for w in views)

    @property
    def b_O(self) -> Float[Tensor, " d_out"] | None:
        """The bias of the output projection, which belongs to the layer and not to a head."""
        name = self.weights["o"].bias
        return None if name is None else self.parameters[name]

    @property
    def gated(self) -> bool:
        """Whether the heads' outputs are multiplied by a gate before W_O."""
        return self.storage.g is not None

    @property
    def W_G(self) -> tuple[Rows, ...] | None:
        """The rows of the gate, per query head: value_dim of them, or one."""
        return self._rows("g") if self.gated else None

    @property
    def b_G(self) -> tuple[Row, ...] | None:
        return self._biases("g") if self.gated else None

    @property
    def latent(self) -> LatentWeights | None:
        """The weights that the heads of a layer with latent attention share; None if it has none."""
        latent = self.storage.latent
        if latent is None:
            return None

        def views(part: Projection) -> tuple[Rows, Row | None]:
            biases = self._biases_of(part)
            return self._rows_of(part)[0], None if biases is None else biases[0]

        (W_DKV, b_DKV), (W_KR, b_KR) = views(latent.kv_down), views(latent.k_rope)
        W_DQ, b_DQ = (None, None) if latent.q_down is None else views(latent.q_down)
        return LatentWeights(W_DKV, W_KR, W_DQ, b_DKV, b_KR, b_DQ, latent.norms)

    def require(self, action: str, *, direct: bool = False, ungated: bool = False) -> None:
        """Raise if `action` does not support this layer: `direct`, k and v are linear in x; `ungated`."""
        kind = type(self.module).__name__
        if direct and self.storage.latent is not None:
            raise AnatomyError(
                f"{action} does not support latent attention ({kind}, {self.where}): keys and values "
                "come from a normed latent vector, so no W_K and W_V of a head read the layer's input",
                hint="capture, measure, ablate, and cutting of heads work",
            )
        if ungated and self.gated:
            raise AnatomyError(
                f"{action} does not support gated attention ({kind}, {self.where}): a gate "
                "multiplies the heads' outputs before W_O",
                hint="capture, measure, ablate, and cutting of heads work",
            )

    def head(self, i: int) -> Head:
        """The weights of query head i of the layer, with the key and value weights of its group."""
        if not 0 <= i < self.num_heads:
            raise AnatomyError(
                f"{self.name} has {plural(self.num_heads, 'head')}, got head {i}", hint="heads count from 0"
            )
        kv = self.groups.kv_of_head[i]
        b_Q, b_K, b_V = self.b_Q, self.b_K, self.b_V
        W_G, b_G = self.W_G, self.b_G
        return Head(
            self.site.name(i),
            kv,
            self.W_Q[i],
            self.W_K[kv],
            self.W_V[kv],
            self.W_O[i],
            None if b_Q is None else b_Q[i],
            None if b_K is None else b_K[kv],
            None if b_V is None else b_V[kv],
            None if W_G is None else W_G[i],
            None if b_G is None else b_G[i],
        )

    def __str__(self) -> str:
        kv = "" if self.num_kv_heads == self.num_heads else f", {plural(self.num_kv_heads, 'kv head')}"
        size = f"{self.key_dim}" if self.key_dim == self.value_dim else f"{self.key_dim}/{self.value_dim}"
        names = " ".join(f"{x}={part.parameter}" for x, part in self.weights.items())
        return f"{self.name}: {plural(self.num_heads, 'head')} of {size}{kv} in {self.path} ({names})"

    __repr__ = __str__

    def _rows(self, letter: str) -> tuple[Rows, ...]:
        return self._rows_of(self.weights[letter])

    def _biases(self, letter: str) -> tuple[Row, ...] | None:
        return self._biases_of(self.weights[letter])

    def _rows_of(self, part: Projection) -> tuple[Rows, ...]:
        views = [slots.of(self.parameters[part.parameter], part.axis) for slots in part.heads]
        return tuple(w.mT if part.axis == 1 else w for w in views)

    def _biases_of(self, part: Projection) -> tuple[Row, ...] | None:
        return None if part.bias is None else tuple(s.of(self.parameters[part.bias], 0) for s in part.bias_heads)


class Anatomy(Sequence[LayerAnatomy]):
    """All attentions of a model, in the order in which they run.

    Index it by position, by layer name ("L3", "decoder.L3"), or by head: anatomy["L3H7"], anatomy[3, 7]. `notes`
    name the modules that look like attention and are not listed: linear attention, or modules that did not run.
    """

    def __init__(self, layers: Sequence[LayerAnatomy], notes: Sequence[str] = ()) -> None:
        self.layers = tuple(layers)
        self.notes = tuple(notes)
        """modules that look like attention and are not listed"""

    def __len__(self) -> int:
        return len(self.layers)

    def __iter__(self) -> Iterator[LayerAnatomy]:
        return iter(self.layers)

    @overload
    def __getitem__(self, index: int) -> LayerAnatomy: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[LayerAnatomy, ...]: ...
    @overload
    def __getitem__(self, index: tuple[int, int] | tuple[str, int, int]) -> Head: ...
    @overload
    def __getitem__(self, index: str) -> LayerAnatomy | Head: ...
    def __getitem__(self, index: int | slice | HeadName) -> LayerAnatomy | Head | tuple[LayerAnatomy, ...]:
        if isinstance(index, int | slice):
            return self.layers[index]
        for layer in self.layers:
            if index in (layer.name, layer.path):
                return layer
        site, head = find_site(index, [layer.site for layer in self.layers])
        return next(layer for layer in self.layers if layer.site == site).head(head)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.layers), *(f"note: {note}" for note in self.notes)])

    __repr__ = __str__
