"""W_Q, W_K, W_V, W_O of every head of a model, as views of the model's parameters, verified on a run."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import Tensor, nn

from multihead._base.arguments import check_model
from multihead.errors import AnatomyError, ModelRunError
from multihead.model.call_trace import LETTERS, Trace
from multihead.model.compiled import inner
from multihead.model.example_inputs import example_inputs
from multihead.model.families import recall
from multihead.model.find_head_rows import HiddenRowsError, find
from multihead.model.graph import Graph
from multihead.model.head_storage import Storage
from multihead.model.layer_anatomy import Anatomy, FoundBy, LayerAnatomy
from multihead.model.run_with_graph import Discovery, discover, nonzero
from multihead.model.sites import Key, Site
from multihead.model.verify_weights import Proof, prove


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
