"""W_Q, W_K, W_V, W_O of every head of a model, as views of its own parameters, proven by numbers.

>>> import torch, multihead as mh
>>> encoder = torch.nn.TransformerEncoderLayer(24, 3, batch_first=True)
>>> layer = mh.anatomy(encoder)[0]
>>> layer.num_heads, layer.key_dim, layer.W_Q[2].shape
(3, 8, torch.Size([8, 24]))
>>> with torch.no_grad():
...     _ = layer.W_O[2].zero_()  # writes into the model
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal, overload

from jaxtyping import Float
from torch import Tensor, nn

from multihead._base.arguments import check_model
from multihead.errors import AnatomyError
from multihead.layer.problem import Groups
from multihead.model.example_inputs import example_inputs
from multihead.model.families import recall
from multihead.model.finder import LETTERS, HiddenRowsError, Projection, Storage, Trace, find
from multihead.model.graph import Graph
from multihead.model.intercept import inner
from multihead.model.proof import Proof, prove
from multihead.model.sites import Key, Site, name_sites
from multihead.model.sites import find as find_site
from multihead.model.traced_run import Discovery, discover, nonzero
from multihead.table.head_names import HeadName

FoundBy = Literal["row", "finder"]
Rows = Float[Tensor, "dim width"]
Row = Float[Tensor, " dim"]


@dataclass(frozen=True)
class Head:
    """One query head with the kv head that it reads: views, of the same memory as the model's parameters.

    q = x W_Qᵀ + b_Q, and the same for k and v; its part of the layer's output is z W_Oᵀ.
    """

    name: str
    kv_head: int
    W_Q: Float[Tensor, "key_dim d_model"]
    W_K: Float[Tensor, "key_dim d_key"]
    W_V: Float[Tensor, "value_dim d_value"]
    W_O: Float[Tensor, "d_out value_dim"]
    b_Q: Float[Tensor, " key_dim"] | None
    b_K: Float[Tensor, " key_dim"] | None
    b_V: Float[Tensor, " value_dim"] | None


@dataclass(frozen=True)
class LayerAnatomy:
    """The heads of one attention: sizes, and where every weight lives.

    `weights["q"]` says in which parameter, along which axis and at which indices each head lies; W_Q, W_K, … are
    the views. W_Q and W_O are per query head, W_K and W_V per kv head: query head i reads kv head
    groups.kv_of_head[i]. Rows are in the order of the parameter.
    """

    site: Site
    module: nn.Module
    key_dim: int
    value_dim: int
    storage: Storage
    between: Mapping[str, tuple[str, ...]]
    """parameters between a projection and the kernel (norms of q and k), by letter"""
    sinks: str | None
    """the parameter of the learned sinks, one number per query head"""
    proof: Proof
    found_by: FoundBy
    parameters: Mapping[str, nn.Parameter]

    @property
    def weights(self) -> Mapping[str, Projection]:
        """By letter: parameter, axis and indices of every head."""
        return {letter: self.storage[letter] for letter in "qkvo"}

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
        """The bias of the output projection: the layer's, no head's."""
        name = self.weights["o"].bias
        return None if name is None else self.parameters[name]

    def head(self, i: int) -> Head:
        """Query head i, with the key and value weights of its group."""
        if not 0 <= i < self.num_heads:
            raise AnatomyError(
                f"there is no head {i} in {self.name}: it has {self.num_heads}", hint="heads count from 0"
            )
        kv = self.groups.kv_of_head[i]
        b_Q, b_K, b_V = self.b_Q, self.b_K, self.b_V
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
        )

    def __str__(self) -> str:
        kv = "" if self.num_kv_heads == self.num_heads else f", {self.num_kv_heads} kv heads"
        size = f"{self.key_dim}" if self.key_dim == self.value_dim else f"{self.key_dim}/{self.value_dim}"
        places = " ".join(f"{x}={part.parameter}" for x, part in self.weights.items())
        return f"{self.name}: {self.num_heads} heads of {size}{kv} in {self.path} ({places})"

    __repr__ = __str__

    def _rows(self, letter: str) -> tuple[Rows, ...]:
        part = self.weights[letter]
        views = [slots.of(self.parameters[part.parameter], part.axis) for slots in part.heads]
        return tuple(w.mT if part.axis == 1 else w for w in views)

    def _biases(self, letter: str) -> tuple[Row, ...] | None:
        part = self.weights[letter]
        return None if part.bias is None else tuple(s.of(self.parameters[part.bias], 0) for s in part.bias_heads)


class Anatomy(Sequence[LayerAnatomy]):
    """All attentions of a model, in the order of its run.

    By place, by name ("L3", "decoder.L3"), or a head by its name: anatomy["L3H7"], anatomy[3, 7].
    """

    def __init__(self, layers: Sequence[LayerAnatomy]) -> None:
        self.layers = tuple(layers)

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
        return "\n".join(str(layer) for layer in self.layers)

    __repr__ = __str__


def anatomy(
    model: nn.Module, inputs: Mapping[str, Any] | tuple[Any, ...] | Tensor | None = None, *, families: bool = True
) -> Anatomy:
    """Find the weights of every head of a model, and prove them on one run.

    Norms of q and k may have factors of zero, which hide rows of W_Q and W_K from the kernel. The model then runs a
    second time, with random factors: the rows of a head do not depend on them.

    Args:
        inputs: what model(**inputs) takes; left out, a small random batch is made from the model's config.
        families: look up the layouts of known architectures; without, the finder does all. The proof is the same.
    """
    check_model(model)
    _check_weights(model)
    if isinstance(inputs, Tensor):
        inputs = (inputs,)
    with _traced(model, inputs) as found:
        try:
            return Anatomy(_layers(found, families))
        except HiddenRowsError:
            factors = _factors(found)
            if not factors:
                raise
    with nonzero(factors), _traced(model, inputs) as found:
        return Anatomy(_layers(found, families))


@contextmanager
def _traced(model: nn.Module, inputs: Mapping[str, Any] | tuple[Any, ...] | None) -> Generator[Discovery]:
    """One run of the model that has attention and leads back to its weights."""
    with ExitStack() as stack:
        found = stack.enter_context(discover(model, inputs)) if inputs is not None else _made_up(model, stack)
        if not found.outputs:
            raise AnatomyError(
                f"what {type(inner(model)).__name__} returns is detached: nothing leads from it to the weights",
                hint="does forward run under torch.no_grad, or return numbers that are no tensors?",
            )
        yield found


def _layers(found: Discovery, families: bool) -> list[LayerAnatomy]:
    calls = {s.call.key: s.call for s in found.seen}
    sites = name_sites({key: (call.problem.q.shape[1], call.cross) for key, call in calls.items()})
    graph = Graph(found)
    layers: dict[Key, LayerAnatomy] = {}
    for seen in found.seen:
        key, trace = seen.call.key, Trace(seen, graph)
        if key not in layers:
            layers[key] = _layer(sites[key], trace, found, families)
        else:  # a module that calls the kernel more than once: all its calls must be of the same heads
            prove(layers[key].storage, trace)
    return list(layers.values())


def _factors(found: Discovery) -> list[nn.Parameter]:
    """The parameters between a projection and the kernel, of all layers."""
    graph = Graph(found)
    names = {name for seen in found.seen for letter in LETTERS for name in Trace(seen, graph).between(letter)}
    return [p for name, p in found.model.named_parameters() if name in names]


def _check_weights(model: nn.Module) -> None:
    for name, p in model.named_parameters():
        if p.is_inference():
            raise AnatomyError(
                f"{name} was made under torch.inference_mode, so that nothing can be followed back to it",
                hint="make or load the model outside of that block; anatomy itself may run inside of one",
            )


def _made_up(model: nn.Module, stack: ExitStack) -> Discovery:
    """The run on an input that was made up, which a model may not take."""
    given = example_inputs(inner(model))
    try:
        return stack.enter_context(discover(model, given))
    except (TypeError, ValueError, LookupError, RuntimeError, AttributeError) as failed:
        shapes = {name: tuple(x.shape) for name, x in given.items() if isinstance(x, Tensor)}
        why = str(failed).partition("\n")[0]
        raise AnatomyError(
            f"{type(inner(model)).__name__} does not run on the input that was made up for it, {shapes}: {why}",
            hint="pass inputs={...}, what model(**inputs) takes",
        ) from failed


def _found(trace: Trace, families: bool) -> tuple[Storage, Proof, FoundBy]:
    known = recall(trace) if families else None
    if known is not None:
        try:
            return known, prove(known, trace), "row"
        except AnatomyError:
            pass  # a class of a known name that keeps its weights in another way
    storage = find(trace)
    return storage, prove(storage, trace), "finder"


def _layer(site: Site, trace: Trace, found: Discovery, families: bool) -> LayerAnatomy:
    storage, proof, found_by = _found(trace, families)
    problem = trace.seen.call.problem
    parameters = dict(found.model.named_parameters())
    used = {name for x in "qkvo" for name in (storage[x].parameter, storage[x].bias) if name is not None}
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
