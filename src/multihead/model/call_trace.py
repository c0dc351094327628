"""One attention call with the graph around it: the linear maps before and after the kernel."""

from __future__ import annotations

from functools import cached_property
from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from multihead.errors import AnatomyError
from multihead.model.dependent_channels import Support, support_of
from multihead.model.find_gate import GateTrace, find_gate
from multihead.model.graph import Graph, Product, edge_of, gradients, sent_back
from multihead.model.run_with_graph import TracedAttention

LETTERS = "qkv"


class Trace:
    """One attention call with the graph around it: its products, and the channels that each head depends on."""

    def __init__(self, seen: TracedAttention, graph: Graph) -> None:
        self.seen, self.graph = seen, graph
        self.path = seen.call.path
        self.name = seen.call.path or type(seen.call.module).__name__
        problem = seen.call.problem
        self.vectors = {"q": problem.q, "k": problem.k, "v": problem.v}
        self._products: dict[str, Product] = {}
        self._back = {letter: graph.back(x) for letter, x in self.vectors.items()}

    def product(self, letter: str) -> Product:
        """In a call's trace, the linear map that produces q, k, v or the gate (g), or (o) reads the outputs."""
        if letter not in self._products:
            self._products[letter] = self._product(letter)
        return self._products[letter]

    def _product(self, letter: str) -> Product:
        """The linear map of a letter, found in the trace of the call."""
        if letter == "g":
            return cast(GateTrace, self.gate).product
        products = self.graph.on(self.seen.heads) if letter == "o" else self._back[letter].products
        if letter == "k" and self.k_rope is not None:
            products = [p for p in products if p is not self.k_rope]
        if len(products) == 1:
            if letter != "o":
                self._check_feeds_only_attention(letter, products[0])
            return products[0]
        names = ", ".join(p.weight.name for p in products)
        role = "the heads' outputs must feed" if letter == "o" else f"{letter} must come from"
        raise AnatomyError(
            f"{self.name}: {role} exactly one linear map, got {len(products)}{f' ({names})' if names else ''}",
            hint="merge adapters (LoRA) into their weights first; with several maps, none holds all rows of a head"
            if products
            else "only y = x Wᵀ + b with a parameter W is supported: no convolutions, no quantised weights",
        )

    @cached_property
    def k_rope(self) -> Product | None:
        """In a call of latent attention, the product of the keys' shared part; the rest is the product of v."""
        keys, values = self._back["k"].products, self._back["v"].products
        if len(keys) != 2 or len(values) != 1 or values[0] not in keys:
            return None
        return next(p for p in keys if p is not values[0])

    def _check_feeds_only_attention(self, letter: str, product: Product) -> None:
        """Raise if a traced product feeds other weights too: it is the residual stream, not a projection."""
        others = self.graph.feeds(product)
        if others and self.gate is not None:  # one projection for queries and gate
            others = self.graph.feeds(product, self.gate.multiplication.node)
        if others:
            raise AnatomyError(
                f"{self.name}: {letter} must have its own projection, but {product.weight.name}, the first weight "
                f"before it, also feeds {others[0]}",
                hint=f"this attention has no weight for {letter}: there is nothing to show or prune",
            )

    def between(self, letter: str) -> list[str]:
        """The parameters between the projection and the kernel: norms, scales."""
        return self._back[letter].between

    @cached_property
    def supports(self) -> dict[str, list[Support]]:
        return {letter: self._supports(letter, self.product(letter)) for letter in LETTERS}

    @cached_property
    def k_rope_supports(self) -> list[Support]:
        """Latent attention: the dependence of every head's key on the shared product."""
        return [] if self.k_rope is None else self._supports("k", self.k_rope)

    def _supports(self, letter: str, product: Product) -> list[Support]:
        """The rows that each head depends on, in the trace of a call."""
        vectors, search = self.vectors[letter], self._back[letter]
        others = [p for p in search.products if p is not product]
        drawn = torch.randn(vectors.shape[2:], generator=torch.Generator().manual_seed(0)).to(vectors)
        supports: list[Support] = []
        for head in range(vectors.shape[1]):
            of_head = vectors[:, head]
            weights = drawn.expand_as(of_head).contiguous()
            support = support_of(of_head, of_head, weights, product, search.ones, without=others)
            if support is None:
                raise AnatomyError(
                    f"{self.name}: {letter} of head {head} has no finite gradient from {product.weight.name}",
                    hint="are there NaN or inf in the weights or in the input?",
                )
            supports.append(support)
        return supports

    @cached_property
    def gate(self) -> GateTrace | None:
        """The traced call's factor on the heads' outputs; None if they reach W_O unchanged or by no gate."""
        product, heads = self.product("o"), self.seen.heads
        try:
            sent_back(product.source(), edge_of(heads), torch.ones_like(product.x, dtype=torch.long))
        except AnatomyError:
            return find_gate(self.graph, heads, product, self.name)
        return None

    def at_heads(self, codes: Int[Tensor, "row column"]) -> Int[Tensor, "batch head query dim"]:
        """Codes of the inputs of W_O, traced back to the call's head outputs."""
        product, heads = self.product("o"), self.seen.heads
        if self.gate is not None:
            return self.gate.send_back(codes, product, heads)
        try:
            return sent_back(product.source(), edge_of(heads), codes)
        except AnatomyError as error:
            raise AnatomyError(
                f"{self.name}: between the heads' outputs and {product.weight.name}, {error.message}",
                hint="a factor or norm there mixes or scales heads, so no columns of W_O belong to a single head",
            ) from None

    @cached_property
    def factor(self) -> Float[Tensor, "batch head query dim"] | float:
        """What the call's head outputs are multiplied by before W_O: the gate, or 1."""
        if self.gate is None:
            return 1.0
        product = self.product("o")
        (factor,) = gradients(product.source(), torch.ones_like(product.x), [edge_of(self.seen.heads)])
        return 1.0 if factor is None else factor

    @cached_property
    def columns(self) -> list[list[int]]:
        """The columns of the output projection that read each head, traced from the call."""
        product = self.product("o")
        columns = torch.arange(1, product.x.shape[1] + 1, device=product.x.device)
        arrived = self.at_heads(columns.expand(product.x.shape))
        code = arrived.amax((0, 2))
        if bool(((arrived != 0) & (arrived != code[None, :, None])).any()) or bool((code == 0).any()):
            raise AnatomyError(
                f"{self.name}: every token's head outputs must reach {product.weight.name} in the same order",
                hint="keep the order of heads fixed between the kernel and W_O",
            )
        return (code - 1).tolist()
