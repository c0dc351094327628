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
    "rope off": Mutant(
        "attention.py",
        "return x if rotary is None or factors is None else rotary.rotate(x, factors)",
        "return x",
        ("rotary",),
    ),
    "rope turned backwards": Mutant(
        "_rotary.py", "torch.cat((-sin, sin), dim=-1)", "torch.cat((sin, -sin), dim=-1)", ("rotary",)
    ),
    "rope with halves for pairs": Mutant(
        "_rotary.py", "self.interleaved = interleaved", "self.interleaved = False", ("rotary",)
    ),
    "rope at the top left in cross-attention": Mutant(
        "_kv_store.py", "return keys - queries if positions is None else positions, 0", "return 0, 0", ("rotary",)
    ),
    "scale dropped": Mutant("_kernels.py", ".mT) * scores.scale", ".mT)", ("scale",)),
    "scale of the fused kernel dropped": Mutant(
        "_kernels.py", "scale=scale, enable_gqa", "scale=None, enable_gqa", ("scale",)
    ),
    "scale of the direct call dropped": Mutant(
        "_attend.py", "scale=problem.scores.scale, enable_gqa", "scale=None, enable_gqa", ("scale",)
    ),
    "causal flag of the direct call dropped": Mutant(
        "_attend.py", "None, 0.0, plan.causal,", "None, 0.0, False,", ("causal",)
    ),
    "negative scale in the fused kernel": Mutant("_kernels.py", "if scale <= 0:", "if False:", ("scale",)),
    "scale of the value size": Mutant(
        "attention.py", "max(self.head_dim, 1) ** -0.5", "max(self.value_dim, 1) ** -0.5", ("scale",)
    ),
    "qk-norm after instead of before": Mutant(
        "attention.py", 'self.qk_norm.when == "before"', 'self.qk_norm.when == "after"', ("norms",)
    ),
    "qk-norm left out": Mutant(
        "attention.py", "x = normed(x).to(x.dtype)  # autocast", "x = x  # autocast", ("norms",)
    ),
    "softcap after the mask": Mutant(
        "_kernels.py",
        "logits.masked_fill(~allowed, -torch.inf)",
        "logits.masked_fill(~allowed, -(softcap or torch.inf))",
        ("softcap",),
    ),
    "softcap left out of the backward": Mutant(
        "_blocked.py", "d.mul_(_slope(block, row, heads))", "pass", ("softcap",)
    ),
    "sink forgotten": Mutant(
        "_kernels.py", "softmax_with_sink(logits, scores.sinks)", "softmax_with_sink(logits, None)", ("sinks",)
    ),
    "sink forgotten in the fused kernel": Mutant(
        "_kernels.py", "if block.scores.sinks is not None:", "if False:", ("sinks",)
    ),
    "sink without a gradient": Mutant(
        "_blocked.py", "d_sinks[heads] -= (sink_weight * delta)", "d_sinks[heads] -= (0 * delta)", ("sinks",)
    ),
    "sink gets a dummy query too few": Mutant(
        "_kernels.py", "q = F.pad(q, (0, 0, 1, 0))", "q = F.pad(q, (0, 0, 0, 1))", ("sinks",)
    ),
    "dropout unscaled": Mutant(
        "_dropout.py",
        "self.rescale = 1 / self.keep_prob if self.keep_prob else 0.0",
        "self.rescale = 1.0",
        ("dropout",),
    ),
    "dropout of the wrong share": Mutant(
        "_dropout.py",
        "self.keep_prob = round((1.0 - dropout) * STEPS)",
        "self.keep_prob = round(dropout * STEPS)",
        ("dropout",),
    ),
    "dropout in eval": Mutant(
        "_layer_base.py", "self.dropout if self.training else 0.0", "self.dropout", ("dropout",)
    ),
    "dropout drawn again in the backward": Mutant(
        "_blocked.py",
        "return DropoutMask(dropout, self.seed,",
        "return DropoutMask(dropout, fresh_seed(),",
        ("dropout",),
    ),
    "softmax gradient without its mean": Mutant(
        "_blocked.py", "d.sub_(delta).mul_(weights)  # of the scores", "d.mul_(weights)", ("causal", "groups")
    ),
    # ---- heads
    "groups tiled instead of repeated": Mutant(
        "_problem.py", "x.repeat_interleave(self.size, dim=1)", "x.repeat(1, self.size, 1, 1)", ("groups",)
    ),
    "groups counted modulo": Mutant(
        "_problem.py", "Groups(tuple(h // (heads // kv_heads) for h", "Groups(tuple(h % kv_heads for h", ("groups",)
    ),
    "groups folded in the wrong order": Mutant(
        "_decode.py",
        "* scores.scale).reshape(batch * kv_heads, rows, dim)",
        "* scores.scale).transpose(1, 2).reshape(batch * kv_heads, rows, dim)",
        ("groups",),
    ),
    "uneven map ignored": Mutant(
        "_problem.py",
        "index_select(1, torch.tensor(self.kv_of_head,",
        "index_select(1, torch.tensor([0 for _ in self.kv_of_head],",
        ("uneven_groups",),
    ),
    "value padding not sliced off": Mutant(
        "_kernels.py",
        "out.shape[2] - queries :, :value_dim]",
        "out.shape[2] - queries :, -value_dim:]",
        ("value_sizes",),
    ),
    "gate on the wrong axis": Mutant("_checks.py", "gate.view(1, -1, 1, 1)", "gate.view(1, 1, -1, 1)", ("gates",)),
    "gate per row on the wrong axis": Mutant(
        "_checks.py",
        "gate.reshape(*shape, *(1,) * (4 - len(shape)))",
        "gate.reshape(shape[0], *(1,) * (4 - len(shape)), *shape[1:])",
        ("gates",),
    ),
    # ---- who sees whom
    "mask polarity flipped": Mutant(
        "_kernels.py", "logits.masked_fill(~allowed", "logits.masked_fill(allowed", ("lengths", "causal")
    ),
    "mask polarity flipped where something is added": Mutant(
        "_kernels.py", "mask.masked_fill(~block.allowed", "mask.masked_fill(block.allowed", ("alibi", "additive")
    ),
    "padding polarity flipped": Mutant(
        "_mask_structured.py",
        "return self._columns(grid, real)[",
        "return ~self._columns(grid, real)[",
        ("lengths",),
    ),
    "top-left causal": Mutant(
        "_coordinates.py", "torch.arange(self.offset, self.keys,", "torch.arange(0, self.queries,", ("causal",)
    ),
    "causal sees one ahead": Mutant(
        "_mask_structured.py", "return grid.key <= grid.query\n", "return grid.key <= grid.query + 1\n", ("causal",)
    ),
    "causal tile too bold": Mutant(
        "_mask_structured.py", "return hi - 1 <= span.start\n", "return hi - 2 <= span.start\n", ("causal",)
    ),
    "window one too wide": Mutant(
        "_mask_structured.py",
        "grid.key > grid.query - self.left",
        "grid.key >= grid.query - self.left",
        ("window",),
    ),
    "window one too narrow": Mutant(
        "_mask_structured.py",
        "grid.key > grid.query - self.left",
        "grid.key > grid.query - self.left + 1",
        ("window",),
    ),
    "window loses a key to the tiles": Mutant(
        "_mask_structured.py",
        "max(span.start - self.left + 1, 0)",
        "max(span.start - self.left + 2, 0)",
        ("window",),
    ),
    "window forgets the first keys": Mutant(
        "_mask_structured.py", "near | (grid.key < self.first) if self.first else near", "near", ("window",)
    ),
    "window tile too bold": Mutant(
        "_mask_structured.py",
        "near = lo > span.stop - 1 - self.left",
        "near = lo > span.start - 1 - self.left",
        ("window",),
    ),
    "lengths off by one": Mutant(
        "_mask_structured.py",
        "        return grid.key < self.limit(grid)\n",
        "        return grid.key <= self.limit(grid)\n",
        ("lengths",),
    ),
    "lengths of another row": Mutant(
        "_mask_structured.py", "(limits if self.rows == 1 else limits[grid.batches])", "limits[:1]", ("lengths",)
    ),
    "ragged queries attend": Mutant(
        "_mask_structured.py",
        "real_query = grid.row < self.limit(grid)",
        "real_query = grid.row >= 0",
        ("ragged", "alibi"),
    ),
    "alternatives to ragged are packed": Mutant(
        "_mask_algebra.py",
        "self.ragged = False  # padding of one part",
        "self.ragged = any(m.ragged for m in masks)  # padding of one part",
        ("ragged",),
    ),
    "keys and values swapped in the joint product": Mutant(
        "_projections.py", "q, k, v = _strided(product", "q, v, k = _strided(product", ("causal",)
    ),
    "ragged bias row forgotten": Mutant(
        "_packed_batch.py", "padded = empty.expand(", "padded = (0 * empty).expand(", ("ragged",)
    ),
    "packed rows take the positions of others": Mutant(
        "_packed_batch.py",
        ".expand(self.batch, self.width).flatten()[self.index]",
        ".expand(self.batch, self.width).flatten()[: len(self.index)]",
        ("positions",),
    ),
    "documents leak": Mutant(
        "_mask_documents.py", "(query_id == key_id) & (", "(query_id >= key_id) & (", ("documents",)
    ),
    "padding of documents attends": Mutant(
        "_mask_documents.py", "(query_id == key_id) & (query_id >= 0)", "query_id == key_id", ("documents",)
    ),
    "document tile too bold": Mutant(
        "_mask_documents.py",
        "return any(i >= 0 and first <= lo and hi <= last for i,",
        "return any(i >= 0 and first <= lo < last for i,",
        ("structure",),
    ),
    "prefix off": Mutant(
        "_mask_structured.py",
        "(grid.key <= grid.query) | (grid.key < self.limit(grid))",
        "grid.key <= grid.query",
        ("prefix",),
    ),
    "prefix cut by the tiles": Mutant(
        "_mask_structured.py", "[(0, max(span.stop, self.lengths.row(span.row)))]", "[(0, span.stop)]", ("prefix",)
    ),
    "additive -inf ignored": Mutant(
        "_mask_cells.py",
        "return self.block_of(grid) != -torch.inf",
        "return self.block_of(grid) == self.block_of(grid)",
        ("additive",),
    ),
    "additive without a gradient": Mutant(
        "_blocked.py", "add_to(d_bias, row, heads, d)", "pass", ("additive", "relative_bias")
    ),
    "and read as or": Mutant(
        "_mask_algebra.py", "_combine(torch.logical_and,", "_combine(torch.logical_or,", ("composed", "lengths")
    ),
    "or covered only by one": Mutant(
        "_mask_algebra.py",
        "return union([interval for m in self.masks for interval in m.key_ranges(span)])",
        "return self.masks[0].key_ranges(span)",
        ("composed",),
    ),
    "tiles joined over different keys": Mutant(
        "_tiles.py",
        "joined[-1][1:] == (start, keys, tile_mask)",
        "joined[-1][3] == tile_mask",
        ("window", "documents"),
    ),
    "rows joined that differ": Mutant(
        "_tiles.py", "if joined and joined[-1][1] == tiles:", "if joined:", ("lengths",)
    ),
    "empty row not zeroed": Mutant(
        "_kernels.py",
        "return out if block.row_has_key is None else out.masked_fill(~block.row_has_key, 0.0)",
        "return out",
        ("empty_rows",),
    ),
    "empty row not zeroed in the reference": Mutant(
        "_kernels.py", "weights = weights.masked_fill(~block.row_has_key, 0.0)", "pass", ("empty_rows",)
    ),
    "NaN guard removed": Mutant(
        "_attend.py",
        "return out if finite else _repaired(problem, plan)",
        "return out",
        ("hidden_nan",),
    ),
    "NaN guard looks at the output only": Mutant(
        "_attend.py",
        "_finite(out) and (not problem.needs_grad or math.isfinite(_sum(problem.k).item()))",
        "_finite(out)",
        ("hidden_nan",),
    ),
    "what may be seen is swallowed": Mutant(
        "_attend.py",
        "on_block(sees_marked_key)) > 0, torch.nan)",
        "on_block(sees_marked_key)) > 9, torch.nan)",
        ("hidden_nan",),
    ),
    # ---- positions that are added
    "ALiBi sign flipped": Mutant("position.py", "* -self.slopes.to(", "* self.slopes.to(", ("alibi",)),
    "ALiBi of the future is free": Mutant(
        "position.py",
        "key_positions.long()[:, None, None, :]).abs()",
        "key_positions.long()[:, None, None, :]).clamp(min=0)",
        ("alibi",),
    ),
    "relative bucket direction": Mutant(
        "position.py", "(distance > 0) * (", "(distance < 0) * (", ("relative_bias",)
    ),
    "relative bias slid the wrong way": Mutant(
        "position.py", "values.unfold(-1, keys, 1).flip(-2)", "values.unfold(-1, keys, 1)", ("relative_bias",)
    ),
    "bias of other positions than the given ones": Mutant(
        "_mask_position.py",
        "query, key = positions[:, grid.rows], grid.take_columns(positions)",
        "pass",
        ("positions",),
    ),
    # ---- caches and asking
    "cache position not advanced": Mutant("_cache_base.py", "return start, start", "return 0, 0", ("caches",)),
    "cache positions of rows ignored": Mutant(
        "_cache_base.py",
        "return (next_positions := self.next_positions(queries)), next_positions",
        "return 0, 0",
        ("ragged_caches",),
    ),
    "ring sees beyond its window": Mutant(
        "cache.py", "mask & window(self.window, first", "mask & window(self.window + 1, first", ("caches",)
    ),
    "ring forgets the first tokens": Mutant(
        "cache.py", "mask & window(self.window, first=self.first)", "mask & window(self.window)", ("caches",)
    ),
    "empty slots of a cache count": Mutant(
        "_mask_structured.py",
        "[*parts, FilledSlots(filled)] if filled is not None else parts",
        "parts",
        ("ragged_caches",),
    ),
    "cross cache filled again": Mutant(
        "_cross_cache.py",
        "        self._validate_rows(batch)\n        return self._buffers()",
        "        self._validate_rows(batch)\n        self.reset()",
        ("cross_cache",),
    ),
    "weights of the wrong kv head": Mutant(
        "outputs.py",
        "device=size.device)[heads]\n    q,",
        "device=size.device)[: len(cells.heads or problem.groups.kv_of_head)]\n    q,",
        ("asking",),
    ),
    "lse without the sink": Mutant(
        "outputs.py", "return lse if sinks is None else", "return lse if True else", ("sinks",)
    ),
    "cross cache answers for another key": Mutant(
        "_cross_cache.py", "(source is None or not source.is_same(x))", "False", ("cross_cache",)
    ),
    "cache counts tokens before the call is accepted": Mutant(
        "_cache_base.py",
        "step.owner = owner\n",
        "step.owner = owner\n        self._set_lengths(step.after)\n",
        ("refused_calls",),
    ),
    "cache serves several layers": Mutant(
        "_cache_base.py",
        "if self._owner is not None and any(self._row_lengths()):",
        "if False:",
        ("refused_calls",),
    ),
    "ring mixes slots and tokens": Mutant("_coordinates.py", "if not self.scattered:", "if True:", ("ring_masks",)),
    "only the first ragged counts in a cache": Mutant(
        "_mask_structured.py", "[min(row) for row in zip(*rows", "[row[0] for row in zip(*rows", ("ragged_caches",)
    ),
    # ---- plans
    "plan of another mask": Mutant(
        "_plan.py", "key = (key, coordinates.key, mask.key)", "key = (key, coordinates.key)", ("plans",)
    ),
    "plan of another size": Mutant(
        "_plan.py", "key = (key, coordinates.key, mask.key)", "key = (key, mask.key)", ("plans",)
    ),
    "mask changed in place is not read again": Mutant(
        "_host_integers.py",
        "return tuple(x.shape), x.dtype, data if len(data) <= 256 else blake2b(data, digest_size=16).digest()",
        "return tuple(x.shape)",
        ("changed_masks",),
    ),
    "lengths changed in place are not read again": Mutant(
        "_host_integers.py",
        "        if self._tensor is None or readable(self._tensor):\n            return self.values\n",
        "        if self._tensor is None:\n            return self.values\n",
        ("changed_masks",),
    ),
    "positions lost for keys": Mutant(
        "attention.py",
        "if key is query and (value is None or value is query) and not isinstance(cache, Cross):",
        "if False:",
        ("positions",),
    ),
    "queries and keys of different frequencies": Mutant(
        "_rotary.py", "for x, positions in (queries, keys)]", "for x, positions in (keys,)]", ("dynamic_ntk",)
    ),
    "padding counts as length": Mutant(
        "_rotary.py", "(max(lengths.values, default=0) if lengths.on_host", "(tokens if True", ("dynamic_ntk",)
    ),
    "query without a key spoils gradients": Mutant(
        "_kernels.py", "block.q = q.masked_fill(~written.row_has_key, 0.0)", "pass", ("ragged",)
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
        "q=torch.zeros_like(problem.q), mask=problem",
        "q=problem.q, mask=problem",
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
        "model/statistics/row_statistics.py",
        "masses = {name: mass * key_mass for name, mass in masses.items()}",
        "pass",
        ("statistics",),
    ),
    "effective keys not squared": Mutant(
        "model/statistics/row_statistics.py",
        'self["weight_norm"].square().reciprocal_()',
        'self["weight_norm"].reciprocal()',
        ("statistics",),
    ),
    "logit scale with the hidden keys": Mutant(
        "model/statistics/row_statistics.py",
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
        "edit/kv_sharing/share.py",
        "error = error + float64(own.b_v[[own.groups.kv_of_head[h] for h in heads]])",
        "pass",
        ("grouping",),
    ),
    "groups in the wrong order": Mutant(
        "edit/surgery/install.py",
        "return new.keep(order)",
        'return __import__("dataclasses").replace(new.keep(order), groups=new.groups)',
        ("grouping",),
    ),
    "refit on uncut inputs": Mutant(
        "edit/refit.py",
        "Forward(self.student), map.listener or self._listener\n        reader = BlockReader(self.student,",
        "Forward(self.original), map.listener or self._listener\n        reader = BlockReader(self.original,",
        ("refitting",),
    ),
    "ridge dropped": Mutant(
        "edit/least_squares.py", "zz.diagonal()[: self.columns] += ridge * mean", "pass", ("refitting",)
    ),
    "ridge on the bias too": Mutant(
        "edit/least_squares.py",
        "zz.diagonal()[: self.columns] += ridge * mean",
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
    # ---- saving
    "damaged weights are loaded": Mutant(
        "store/manifest.py", "if checksum(path) != stored:", "if False:", ("saving",)
    ),
    "a damaged description is loaded": Mutant(
        "store/manifest.py", "if stored != _checksum_of(data):", "if False:", ("saving",)
    ),
    "a save without a comparison of outputs": Mutant(
        "store/formats/custom.py", "if snapshot.outputs is None:", "if True:", ("saving",)
    ),
    "a loaded model is not tried": Mutant("store/load.py", "if manifest.runs:", "if False:", ("saving",)),
    "save_pretrained of a cut model": Mutant(
        "edit/surgery/record.py", 'if record.steps and hasattr(root, "save_pretrained"):', "if False:", ("saving",)
    ),
}
