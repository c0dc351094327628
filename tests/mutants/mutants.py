"""The mistakes that the suite must notice, by name: one edit of the source each, and the checks that see it.

The snippet must be in the file exactly once; when the code moves, the test says so and the table is updated.
To add one: write the mistake as an edit, name the checks of `kill_suite.py` that fail by it.

There is no mutant for packed rows that keep counting across rows under rotary: only distances matter there.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """In `file` of src/multihead/layer (or `folder/file`), `old` becomes `new`; one of `killed_by` must differ."""

    file: str
    old: str
    new: str
    killed_by: tuple[str, ...]

    @property
    def of_the_layer(self) -> bool:
        return "/" not in self.file


MUTANTS: dict[str, Mutant] = {
    # ---- what a head computes
    "rope off": Mutant("attention.py", "x = self.position(x, positions)", "x = x", ("rotary",)),
    "rope turned backwards": Mutant(
        "rotary.py", "torch.cat((-sin, sin), dim=-1)", "torch.cat((sin, -sin), dim=-1)", ("rotary",)
    ),
    "rope with halves for pairs": Mutant(
        "rotary.py",
        "    if interleaved:\n        return torch.complex",
        "    if False:\n        return torch.complex",
        ("rotary",),
    ),
    "rope at the top left in cross-attention": Mutant(
        "steps.py", "here = 0 if same else keys - queries", "here = 0", ("rotary",)
    ),
    "scale dropped": Mutant("kernels.py", ".mT) * scores.scale", ".mT)", ("scale",)),
    "scale of the fused kernel dropped": Mutant(
        "kernels.py", "scale=scale, enable_gqa", "scale=None, enable_gqa", ("scale",)
    ),
    "scale of the value size": Mutant(
        "attention.py", "max(self.head_dim, 1) ** -0.5", "max(self.value_dim, 1) ** -0.5", ("scale",)
    ),
    "qk-norm after instead of before": Mutant(
        "attention.py", 'self.qk_norm.when == "before"', 'self.qk_norm.when == "after"', ("norms",)
    ),
    "qk-norm left out": Mutant(
        "attention.py", "x = norm(x).to(x.dtype)  # autocast", "x = x  # autocast", ("norms",)
    ),
    "softcap after the mask": Mutant(
        "kernels.py",
        "logits = logits.masked_fill(~allowed, -torch.inf)",
        "logits = logits.masked_fill(~allowed, -(scores.softcap or torch.inf))",
        ("softcap",),
    ),
    "softcap left out of the backward": Mutant(
        "blocked.py", "d.mul_(_slope(block, row, heads))", "pass", ("softcap",)
    ),
    "sink forgotten": Mutant(
        "kernels.py", "softmax_with_sink(logits, scores.sinks)", "softmax_with_sink(logits, None)", ("sinks",)
    ),
    "sink forgotten in the fused kernel": Mutant(
        "kernels.py", "if block.scores.sinks is not None:", "if False:", ("sinks",)
    ),
    "sink without a gradient": Mutant(
        "blocked.py", "d_sinks[heads] -= (rest * delta)", "d_sinks[heads] -= (0 * delta)", ("sinks",)
    ),
    "sink gets a dummy query too few": Mutant(
        "kernels.py", "q = F.pad(q, (0, 0, 1, 0))", "q = F.pad(q, (0, 0, 0, 1))", ("sinks",)
    ),
    "dropout unscaled": Mutant(
        "dropout.py", "self.gain = 1 / self.share if self.share else 0.0", "self.gain = 1.0", ("dropout",)
    ),
    "dropout of the wrong share": Mutant(
        "dropout.py",
        "self.share = round((1.0 - dropout) * STEPS)",
        "self.share = round(dropout * STEPS)",
        ("dropout",),
    ),
    "dropout in eval": Mutant(
        "attention.py", "self.dropout if self.training else 0.0", "self.dropout", ("dropout",)
    ),
    "dropout drawn anew in the backward": Mutant(
        "blocked.py", "return Keep(dropout, self.seed)", "return Keep(dropout, fresh_seed())", ("dropout",)
    ),
    "softmax gradient without its mean": Mutant(
        "blocked.py", "d.sub_(delta).mul_(weights)  # of the scores", "d.mul_(weights)", ("causal", "groups")
    ),
    # ---- heads
    "groups tiled instead of repeated": Mutant(
        "problem.py", "x.repeat_interleave(self.size, dim=1)", "x.repeat(1, self.size, 1, 1)", ("groups",)
    ),
    "groups counted modulo": Mutant(
        "problem.py", "Groups(tuple(h // (heads // kv_heads) for h", "Groups(tuple(h % kv_heads for h", ("groups",)
    ),
    "groups folded in the wrong order": Mutant(
        "decode.py",
        "* scores.scale).reshape(batch * kv_heads, rows, dim)",
        "* scores.scale).transpose(1, 2).reshape(batch * kv_heads, rows, dim)",
        ("groups",),
    ),
    "uneven map ignored": Mutant(
        "problem.py",
        "index_select(1, torch.tensor(self.kv_of_head,",
        "index_select(1, torch.tensor([0 for _ in self.kv_of_head],",
        ("uneven_groups",),
    ),
    "value padding not sliced off": Mutant(
        "kernels.py",
        "out.shape[2] - queries :, :value_dim]",
        "out.shape[2] - queries :, -value_dim:]",
        ("value_sizes",),
    ),
    "gate on the wrong axis": Mutant("steps.py", "gate.view(1, -1, 1, 1)", "gate.view(1, 1, -1, 1)", ("gates",)),
    "gate per row on the wrong axis": Mutant(
        "steps.py",
        "gate.reshape(*gate.shape, *(1,) * (4 - gate.ndim))",
        "gate.reshape(gate.shape[0], *(1,) * (4 - gate.ndim), *gate.shape[1:])",
        ("gates",),
    ),
    # ---- who sees whom
    "mask polarity flipped": Mutant(
        "kernels.py", "logits.masked_fill(~allowed", "logits.masked_fill(allowed", ("lengths", "causal")
    ),
    "mask polarity flipped where something is added": Mutant(
        "kernels.py", "mask.masked_fill(~block.allowed", "mask.masked_fill(block.allowed", ("alibi", "additive")
    ),
    "padding polarity flipped": Mutant(
        "mask_kinds.py", "return grid.take_columns(real)[", "return ~grid.take_columns(real)[", ("lengths",)
    ),
    "top-left causal": Mutant(
        "frame.py", "torch.arange(self.offset, self.keys,", "torch.arange(0, self.queries,", ("causal",)
    ),
    "causal sees one ahead": Mutant(
        "mask_kinds.py", "return grid.key <= grid.query\n", "return grid.key <= grid.query + 1\n", ("causal",)
    ),
    "causal tile too bold": Mutant(
        "mask_kinds.py", "return hi - 1 <= span.start\n", "return hi - 2 <= span.start\n", ("causal",)
    ),
    "window one too wide": Mutant(
        "mask_kinds.py", "grid.key > grid.query - self.left", "grid.key >= grid.query - self.left", ("window",)
    ),
    "window one too narrow": Mutant(
        "mask_kinds.py", "grid.key > grid.query - self.left", "grid.key > grid.query - self.left + 1", ("window",)
    ),
    "window loses a key to the tiles": Mutant(
        "mask_kinds.py", "max(span.start - self.left + 1, 0)", "max(span.start - self.left + 2, 0)", ("window",)
    ),
    "window forgets the first keys": Mutant(
        "mask_kinds.py", "near | (grid.key < self.first) if self.first else near", "near", ("window",)
    ),
    "window tile too bold": Mutant(
        "mask_kinds.py",
        "near = lo > span.stop - 1 - self.left",
        "near = lo > span.start - 1 - self.left",
        ("window",),
    ),
    "lengths off by one": Mutant(
        "mask_kinds.py",
        "        return grid.key < self.limit(grid)\n",
        "        return grid.key <= self.limit(grid)\n",
        ("lengths",),
    ),
    "lengths of another row": Mutant(
        "mask_kinds.py", "(limits if self.rows == 1 else limits[grid.batches])", "limits[:1]", ("lengths",)
    ),
    "ragged queries attend": Mutant(
        "mask_kinds.py",
        "(grid.row < self.limit(grid)) & (grid.key < self.limit(grid))",
        "grid.key < self.limit(grid)",
        ("ragged", "alibi"),
    ),
    "ragged bias row forgotten": Mutant(
        "ragged.py", "filled = nothing[0].to", "filled = (0 * nothing[0]).to", ("ragged",)
    ),
    "packed rows take the places of others": Mutant(
        "ragged.py",
        ".expand(batch, width).flatten()[index]",
        ".expand(batch, width).flatten()[: len(index)]",
        ("positions",),
    ),
    "documents leak": Mutant(
        "mask_kinds.py", "(asks == asked) & (asks >= 0)", "(asks >= asked) & (asks >= 0)", ("documents",)
    ),
    "padding of documents attends": Mutant(
        "mask_kinds.py", "(asks == asked) & (asks >= 0)", "asks == asked", ("documents",)
    ),
    "document tile too bold": Mutant(
        "mask_kinds.py", "lo, hi = min(lo, span.start), max(hi, span.stop)", "lo, hi = lo, hi", ("structure",)
    ),
    "prefix off": Mutant(
        "mask_kinds.py",
        "(grid.key <= grid.query) | (grid.key < self.limit(grid))",
        "grid.key <= grid.query",
        ("prefix",),
    ),
    "prefix cut by the tiles": Mutant(
        "mask_kinds.py", "[(0, max(span.stop, self.lengths.row(span.row)))]", "[(0, span.stop)]", ("prefix",)
    ),
    "additive -inf ignored": Mutant(
        "mask_cells.py", "self.block_of(grid) > -torch.inf", "self.block_of(grid) >= -torch.inf", ("additive",)
    ),
    "additive without a gradient": Mutant(
        "blocked.py", "add_to(d_added, row, heads, d)", "pass", ("additive", "relative_bias")
    ),
    "and read as or": Mutant(
        "mask_algebra.py", "_fold(torch.logical_and,", "_fold(torch.logical_or,", ("composed", "lengths")
    ),
    "or covered only by one": Mutant(
        "mask_algebra.py",
        "return union([i for p in self._either for i in p.intervals(span)])",
        "return self._either[0].intervals(span)",
        ("composed",),
    ),
    "tiles joined over different keys": Mutant(
        "tiles.py", "joined[-1][1:] == (start, keys, inside)", "joined[-1][3] == inside", ("window", "documents")
    ),
    "rows joined that differ": Mutant(
        "tiles.py", "if joined and joined[-1][1] == tiles:", "if joined:", ("lengths",)
    ),
    "empty row not zeroed": Mutant(
        "kernels.py",
        "return out if block.alive is None else out.masked_fill(~block.alive, 0.0)",
        "return out",
        ("empty_rows",),
    ),
    "empty row not zeroed in the reference": Mutant(
        "kernels.py", "weights = weights.masked_fill(~block.alive, 0.0)", "pass", ("empty_rows",)
    ),
    "NaN guard removed": Mutant(
        "routes.py",
        "return out if all(_finite(x) for x in looked_at) else",
        "return out if True else",
        ("hidden_nan",),
    ),
    "NaN guard looks at the output only": Mutant(
        "routes.py", "(out, problem.k, problem.v) if problem.needs_grad else (out,)", "(out,)", ("hidden_nan",)
    ),
    "what may be seen is swallowed": Mutant(
        "routes.py", "on_block(reaches)) > 0, torch.nan)", "on_block(reaches)) > 9, torch.nan)", ("hidden_nan",)
    ),
    # ---- positions that are added
    "ALiBi sign flipped": Mutant("position.py", "* -self.slopes.to(", "* self.slopes.to(", ("alibi",)),
    "ALiBi of the future is free": Mutant(
        "position.py",
        "key_positions[:, None, None, :]).abs()",
        "key_positions[:, None, None, :]).clamp(min=0)",
        ("alibi",),
    ),
    "relative bucket direction": Mutant(
        "position.py", "(distance > 0) * (", "(distance < 0) * (", ("relative_bias",)
    ),
    "relative bias slid the wrong way": Mutant(
        "position.py", "values.unfold(-1, keys, 1).flip(-2)", "values.unfold(-1, keys, 1)", ("relative_bias",)
    ),
    "packed rows take the positions of the first": Mutant(
        "attention.py", "own = positions if packed is None else packed.given", "own = positions", ("alibi",)
    ),
    # ---- caches and asking
    "cache position not advanced": Mutant(
        "steps.py", "here = cache.next_positions(queries) if start is None else start", "here = 0", ("caches",)
    ),
    "cache positions of rows ignored": Mutant(
        "steps.py",
        "here = cache.next_positions(queries) if start is None else start",
        "here = start or 0",
        ("ragged_caches",),
    ),
    "ring sees beyond its window": Mutant(
        "steps.py", "masks.window(cache.window, first", "masks.window(cache.window + 1, first", ("caches",)
    ),
    "ring forgets the first tokens": Mutant(
        "steps.py", "masks.window(cache.window, first=cache.first)", "masks.window(cache.window)", ("caches",)
    ),
    "empty slots of a cache count": Mutant(
        "mask_kinds.py", "[*parts, Padding(filled)] if filled is not None else parts", "parts", ("ragged_caches",)
    ),
    "cross cache filled again": Mutant(
        "attention.py",
        "known = cache.known if isinstance(cache, Cross) else None",
        "known = None",
        ("cross_cache",),
    ),
    "weights of the wrong kv head": Mutant(
        "ask.py",
        "device=frame.device)[heads]\n    q,",
        "device=frame.device)[: len(cells.heads or problem.groups.kv_of_head)]\n    q,",
        ("asking",),
    ),
    "lse without the sink": Mutant(
        "ask.py", "return lse if sinks is None else", "return lse if True else", ("sinks",)
    ),
    # ---- seeing heads
    "causal flag of torch from the bottom right": Mutant(
        "model/kernel_arguments.py", "if top_left and queries != keys:", "if False:", ("seen",)
    ),
    "causal flag of torch not seen": Mutant(
        "model/kernel_arguments.py", "rule & masks.causal() if top_left else rule", "rule", ("seen",)
    ),
    "what is meant to hide counts as seen": Mutant(
        "model/kernel_arguments.py",
        "hidden = mask.detach() <= HIDES",
        "hidden = mask.detach() == -torch.inf",
        ("seen",),
    ),
    "bias of a mask forgotten": Mutant(
        "model/kernel_arguments.py", "else rule & masks.additive(added)", "else rule", ("seen",)
    ),
    "scale of the call forgotten": Mutant(
        "model/kernel_arguments.py",
        "factor = q.shape[3] ** -0.5 if scale is None else float(scale)",
        "factor = q.shape[3] ** -0.5",
        ("seen",),
    ),
    "another head ablated": Mutant(
        "model/interventions.py",
        "index = torch.tensor(list(heads), device=out.device)",
        "index = torch.tensor([h - 1 for h in heads], device=out.device)",
        ("interventions",),
    ),
    "patched keys read by the whole group": Mutant(
        "model/interventions.py",
        "kv = [problem.groups.kv_of_head[h] for h in heads]",
        "kv = [0 for h in heads]",
        ("interventions",),
    ),
    "uniform with the head's own scores": Mutant(
        "model/interventions.py",
        "q=torch.zeros_like(problem.q), mask=Visible",
        "q=problem.q, mask=Visible",
        ("interventions",),
    ),
    "gates that count twice": Mutant(
        "model/interventions.py",
        "gates.here(call, out).to(out)[:",
        "gates.here(call, out).square().to(out)[:",
        ("interventions",),
    ),
    # ---- statistics
    "distances from the other side": Mutant(
        "model/statistics/features.py",
        "torch.sub(query.unsqueeze(-1), key",
        "torch.sub(-query.unsqueeze(-1), -key",
        ("statistics",),
    ),
    "the query's own token counts as the same elsewhere": Mutant(
        "model/statistics/features.py",
        'features["same_token"].mul_(torch.ne(distance, 0, out=scratch))',
        "pass",
        ("statistics",),
    ),
    "induction from later tokens": Mutant(
        "model/statistics/features.py",
        'features["induction"].mul_(torch.ge(distance, 0, out=scratch))',
        "pass",
        ("statistics",),
    ),
    "padding counts": Mutant(
        "model/statistics/head_statistics.py",
        "counts = real_rows & ~measured.empty & ~measured.broken",
        "counts = ~measured.empty & ~measured.broken",
        ("statistics",),
    ),
    "masses without the sink's share": Mutant(
        "model/statistics/row_means.py",
        "masses = {name: mass * key_mass for name, mass in masses.items()}",
        "pass",
        ("statistics",),
    ),
    "effective keys not squared": Mutant(
        "model/statistics/row_means.py",
        'self["weight_norm"].square().reciprocal_()',
        'self["weight_norm"].reciprocal()',
        ("statistics",),
    ),
    "logit scale with the hidden keys": Mutant(
        "model/statistics/row_sums.py",
        """            cells.mul_(visible)
        torch.sum""",
        """            pass
        torch.sum""",
        ("statistics",),
    ),
    "first key of the row though it is padding": Mutant(
        "model/statistics/features.py",
        "(real_key.cumsum(-1) == 1) & real_key",
        "(torch.ones_like(real_key).cumsum(-1) == 2)",
        ("statistics",),
    ),
    # ---- cutting
    "grouping forgets the value bias": Mutant(
        "edit/sharing/group.py",
        "lost = lost + own.b_v[[own.groups.kv_of_head[h] for h in heads]].double()",
        "pass",
        ("grouping",),
    ),
    "groups in the wrong order": Mutant(
        "edit/physical/surgery.py",
        "Groups(tuple(new.groups.kv_of_head[h] for h in order)",
        "Groups(tuple(new.groups.kv_of_head)",
        ("grouping",),
    ),
    "refit on uncut inputs": Mutant(
        "edit/fitting/gather.py", "moments.add(new.z, rest)", "moments.add(old.z, rest)", ("refitting",)
    ),
    "ridge dropped": Mutant(
        "edit/fitting/refit.py", "zz.diagonal()[:count] += ridge * mean", "pass", ("refitting",)
    ),
    "ridge on the bias too": Mutant(
        "edit/fitting/refit.py",
        "zz.diagonal()[:count] += ridge * mean",
        "zz.diagonal().add_(ridge * mean)",
        ("refitting",),
    ),
    # ---- many processes
    "halves joined in the order of coming": Mutant(
        "corpus/merge_tree.py",
        "value = self.merge(value, other) if index % 2 == 0 else self.merge(other, value)",
        "value = self.merge(other, value)",
        ("parting",),
    ),
    "a damaged save is used": Mutant("corpus/state.py", "if actual != stored:", "if False:", ("parting",)),
    "draws begin again in every part": Mutant(
        "corpus/documents.py", "part * NUMBERED + number, repeated)", "number, repeated)", ("parting",)
    ),
    "copies in other parts are witnesses": Mutant(
        "corpus/documents.py", "data is not None and self._seen.add(data)", "False", ("parting",)
    ),
}
