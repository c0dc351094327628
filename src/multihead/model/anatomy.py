"""W_Q, W_K, W_V, W_O of every head of a model, as views of the model's parameters, verified on a run."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, overload

from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.arguments import check_model
from multihead._base.plural import plural
from multihead.errors import AnatomyError, ModelRunError
from multihead.layer import Groups
from multihead.model.call_trace import LETTERS, Trace
from multihead.model.compiled import inner
from multihead.model.example_inputs import example_inputs
from multihead.model.families import recall
from multihead.model.find_head_rows import HiddenRowsError, find
from multihead.model.graph import Graph
from multihead.model.run_with_graph import Discovery, discover, nonzero
from multihead.model.sites import Key, Site
from multihead.model.sites import find as find_site
from multihead.model.storage import Projection, Storage
from multihead.model.verify_weights import Proof, prove
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
    (W_UK, W_UV in the paper); R rotates. W_Q of a head reads norm(x W_DQᵀ + b_DQ), or x if W_DQ is None; A.X K2
    puts the vector before its norm beside it.
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
        """The weights in the anatomy that the heads of latent attention share; None if this is none."""
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
        """Raise if `action` does not support this anatomy: `direct`, k and v are linear in x; `ungated`."""
        kind = type(self.module).__name__
        if direct and self.storage.latent is not None:
            raise AnatomyError(
                f"{action} does not support latent attention ({self.name}: {kind} in {self.path}): keys and values "
                "come from a normed latent vector, so no W_K and W_V of a head read the layer's input",
                hint="capture, measure, ablate, and cutting of heads work",
            )
        if ungated and self.gated:
            raise AnatomyError(
                f"{action} does not support gated attention ({self.name}: {kind} in {self.path}): a gate "
                "multiplies the heads' outputs before W_O",
                hint="capture, measure, ablate, and cutting of heads work",
            )

    def head(self, i: int) -> Head:
        """The weights of query head i in the anatomy, with the key and value weights of its group."""
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
        """what the run of the model did not see"""

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


def anatomy(
    model: nn.Module, inputs: Mapping[str, Any] | tuple[Any, ...] | Tensor | None = None, *, families: bool = True
) -> Anatomy:
    """Find the weights of every head of a model, and verify them on one run.

    Norms of q and k may have weights of zero, which hide rows of W_Q and W_K from the kernel. The model then runs a
    second time with random norm weights: which rows belong to a head does not depend on them.

    Args:
        inputs: arguments for model(**inputs); default: a small random batch made from the model's config.
        families: look up the layouts of known architectures first. If False, every layout is found by tracing. Both
            are verified in the same way.

    Returns:
        An `Anatomy`: a sequence of layers with W_Q, W_K, W_V, W_O per head, as views of the model's parameters.

    Raises:
        AnatomyError: if the weights of a head are not found, or do not reproduce its q, k, v and output.
        MultiheadError: if the model has no attention.
        ModelRunError: if the model raises an error on the inputs.

    >>> import multihead as mh
    >>> model, _ = mh.embedded()
    >>> layer = mh.anatomy(model)[0]
    >>> layer.num_heads, layer.W_Q[3].shape  # of head 3: (key_dim, d_model)
    (4, torch.Size([24, 64]))
    >>> _ = layer.W_O[3].data.zero_()  # writes into the model
    """
    check_model(model)
    _check_weights(model)
    if isinstance(inputs, Tensor):
        inputs = (inputs,)
    with _traced(model, inputs) as traced:
        try:
            return Anatomy(_layers(traced, families), traced.notes)
        except HiddenRowsError:
            factors = _factors(traced)
            if not factors:
                raise
    with nonzero(factors), _traced(model, inputs) as traced:
        return Anatomy(_layers(traced, families), traced.notes)


@contextmanager
def _traced(model: nn.Module, inputs: Mapping[str, Any] | tuple[Any, ...] | None) -> Generator[Discovery]:
    """One traced run for the anatomy. Raises if the model has no attention, or no graph back to its weights."""
    with ExitStack() as stack:
        traced = stack.enter_context(discover(model, inputs)) if inputs is not None else _run_example(model, stack)
        if not traced.outputs:
            raise AnatomyError(
                f"the output of {type(inner(model)).__name__} must have a gradient graph, but it is detached",
                hint="does forward run under torch.no_grad, or return values other than tensors?",
            )
        yield traced


def _layers(traced: Discovery, families: bool) -> list[LayerAnatomy]:
    """The anatomy of every attention in a traced run."""
    graph = Graph(traced)
    layers: dict[Key, LayerAnatomy] = {}
    for seen in traced.seen:
        key, trace = seen.call.key, Trace(seen, graph)
        if key not in layers:
            layers[key] = _layer(seen.call.site, trace, traced, families)
        else:  # the module calls the kernel more than once: all its calls must use the same heads
            prove(layers[key].storage, trace)
    return list(layers.values())


def _factors(traced: Discovery) -> list[nn.Parameter]:
    """The parameters between a projection and the kernel, in the anatomy of all layers."""
    graph = Graph(traced)
    names = {name for seen in traced.seen for letter in LETTERS for name in Trace(seen, graph).between(letter)}
    return [p for name, p in traced.model.named_parameters() if name in names]


def _check_weights(model: nn.Module) -> None:
    """Raise if weights were created in inference mode: the anatomy needs a graph back to them."""
    for name, p in model.named_parameters():
        if p.is_inference():
            raise AnatomyError(
                f"{name} was created under torch.inference_mode, so autograd cannot trace outputs back to it",
                hint="create or load the model outside that block; anatomy itself may run inside one",
            )


def _run_example(model: nn.Module, stack: ExitStack) -> Discovery:
    """One traced run for the anatomy on example inputs, which the model may not accept."""
    inputs = example_inputs(inner(model))
    try:
        return stack.enter_context(discover(model, inputs))
    except (ModelRunError, TypeError, ValueError, RuntimeError) as error:
        shapes = {name: tuple(x.shape) for name, x in inputs.items() if isinstance(x, Tensor)}
        reason = str(error.__cause__ if isinstance(error, ModelRunError) else error).partition("\n")[0]
        raise AnatomyError(
            f"{type(inner(model)).__name__} does not run on the example input made for it, {shapes}: {reason}",
            hint="pass inputs={...}, the arguments of model(**inputs)",
        ) from error


def _find_storage(trace: Trace, families: bool) -> tuple[Storage, Proof, FoundBy]:
    """Where an attention's heads are stored, and the proof: by the row of its family, else by search."""
    known = recall(trace) if families else None
    if known is not None:
        try:
            return known, prove(known, trace), "row"
        except AnatomyError:
            pass  # a class with a known name, but a different layout of its weights
    storage = find(trace)
    return storage, prove(storage, trace), "finder"


def _layer(site: Site, trace: Trace, traced: Discovery, families: bool) -> LayerAnatomy:
    """The anatomy of one attention."""
    storage, proof, found_by = _find_storage(trace, families)
    problem = trace.seen.call.problem
    parameters = dict(traced.model.named_parameters())
    parts = [*storage.projections.values()]
    if storage.latent is not None:
        shared = (storage.latent.kv_down, storage.latent.k_rope, storage.latent.q_down)
        parts += [part for part in shared if part is not None]
    used = {name for part in parts for name in (part.parameter, part.bias) if name is not None}
    names = {id(p): name for name, p in parameters.items()}
    return LayerAnatomy(
        site,
        trace.seen.call.module,
        problem.q.shape[3],
        problem.v.shape[3],
        storage,
        {letter: tuple(trace.between(letter)) for letter in "qkv"},
        None if problem.scores.sinks is None else names.get(id(problem.scores.sinks)),
        proof,
        found_by,
        {name: parameters[name] for name in used},
    )
