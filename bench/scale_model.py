"""What measuring costs, on paper: FLOPs and bytes from sizes alone, held against small runs that count them.

    python bench/scale_model.py

prints predicted and counted numbers of small models, then the paper for 70B parameters × 1B tokens and for a
context of 1M tokens. docs/guides/scale.md quotes it. Exits with 1 where a prediction is not what was counted.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass


@dataclass(frozen=True)
class Sizes:
    """A decoder of equal layers."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head_dim: int
    hidden: int
    """of the feed-forward part"""
    gated: bool = True
    vocabulary: int = 0

    @property
    def weights(self) -> int:
        """Numbers in the matrices that every token is multiplied with."""
        attention = self.width * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + self.width * self.hidden * (3 if self.gated else 2))

    def forward(self, tokens: int, length: int) -> int:
        """2 FLOPs per weight and token, 4 per (query, key) pair, head and number of a head; all pairs count."""
        pairs = tokens * length
        output = 2 * tokens * self.width * self.vocabulary
        return 2 * tokens * self.weights + 4 * self.layers * self.heads * self.head_dim * pairs + output

    def statistics(self, tokens: int, length: int, *, features: int) -> int:
        """Products of the statistics beside the forward run: the scores again, and `features` sums over keys."""
        return 2 * self.layers * self.heads * (self.head_dim + features) * tokens * length

    def state(self, statistics: int, binned: int, bins: int) -> int:
        """Bytes of the tensors of a state of the statistics, which is merged and saved."""
        moments = 5 * statistics + binned * bins  # count, mean, squares, least, largest; histograms
        return 8 * self.layers * self.heads * (moments + 1 + self.head_dim + 2)

    def ring(self, tokens: int, ranks: int, bytes_: int) -> int:
        """Bytes that a rank of a context-parallel layer sends forward: all keys and values but its own."""
        return (ranks - 1) * self.kv_heads * 2 * self.head_dim * (tokens // ranks) * bytes_


LLAMA_70B = Sizes(80, 8192, 64, 8, 128, 28672, vocabulary=128256)


def counted() -> list[tuple[str, int, int]]:
    """(what, predicted, counted) of small runs."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import BertConfig, BertModel

    from multihead.corpus.accumulator import Batch
    from multihead.corpus.run import BatchRunner
    from multihead.measures.statistics_sum import StatisticsSum

    rows: list[tuple[str, int, int]] = []
    for sizes, batch, length in (
        (Sizes(2, 48, 3, 3, 16, 96, False), 2, 61),
        (Sizes(3, 80, 5, 5, 16, 64, False), 3, 97),
    ):
        config = BertConfig(
            hidden_size=sizes.width,
            num_hidden_layers=sizes.layers,
            num_attention_heads=sizes.heads,
            intermediate_size=sizes.hidden,
            vocab_size=101,
        )
        model = BertModel(config, add_pooling_layer=False).eval()
        ids = torch.randint(0, 101, (batch, length), generator=torch.Generator().manual_seed(0))
        name, tokens = f"{sizes.layers} layers × {sizes.heads} heads, {batch} × {length} tokens", batch * length
        statistics, one = StatisticsSum(), Batch({"input_ids": ids})
        runner = BatchRunner(model, [statistics])
        runner.run(one)  # the work that is done once per model
        with sdpa_kernel(SDPBackend.MATH):  # torch does not count what its fused kernel of the CPU multiplies
            with torch.no_grad(), FlopCounterMode(display=False) as plain:
                model(input_ids=ids)
            with FlopCounterMode(display=False) as watched:
                runner.run(one)
        forward = sizes.forward(tokens, length)
        rows.append((f"FLOPs forward, {name}", forward, plain.get_total_flops()))
        extra = sizes.statistics(tokens, length, features=FEATURES)
        rows.append((f"FLOPs with statistics, {name}", forward + extra, watched.get_total_flops()))
        tensors = sizes.state(*counts())
        rows.append((f"bytes of the state's tensors, {name}", tensors, tensor_bytes(statistics.state())))
    return rows


FEATURES = 9
"""behind, before, ahead, after, same token, induction; and over keys alone: value norms, first, special"""


def counts() -> tuple[int, int, int]:
    """Statistics, those with a histogram, bins of one."""
    from multihead.model.statistics.meanings import meanings
    from multihead.model.statistics.statistics_options import Statistics
    from multihead.table.column_info import BINS

    found = meanings(Statistics()).values()
    return len(found), sum(1 for m in found if m.scale is not None), BINS


def tensor_bytes(state: object) -> int:
    from multihead.corpus.checkpoint import size_of

    return size_of(state)


def unmerged(documents: int, ranks: int) -> int:
    """Nodes of the merge tree that ranks other than 0 are left with, for batches of the default size."""
    from multihead.corpus.batches import BATCH_SIZE
    from multihead.corpus.merge_tree import BATCHES, Tree, parts_of, share

    parts, count = parts_of(documents, unit=BATCHES * BATCH_SIZE), 0
    for rank in range(1, ranks):
        tree: Tree[None] = Tree(lambda left, right: None)
        for part in share(parts, range(len(parts)), rank, ranks):
            tree.put((0, part), None)
        count += len(tree.nodes)
    return count


def paper() -> list[tuple[str, str]]:
    """70B × 1B tokens in pieces of 4,096; and 1M tokens of context, over 64 ranks."""
    big, tokens, length, ranks = LLAMA_70B, 10**9, 4096, 64
    forward, extra = big.forward(tokens, length), big.statistics(tokens, length, features=FEATURES)
    state, million = big.state(*counts()), 2**20
    nodes = unmerged(tokens // length, ranks)
    # About 20 passes of fp32 numbers over each block of rows; half of the pairs are hidden by the causal mask.
    moved = 20 * 4 * big.layers * big.heads * tokens * length // 2
    attention = 4 * big.layers * big.heads * big.head_dim * million * million
    cache = 2 * big.layers * big.kv_heads * big.head_dim * million * 2
    return [
        ("70B × 1B tokens: forward", f"{forward:.3g} FLOPs; {forward / 4e14 / 3600:.0f} h at 400 TFLOP/s"),
        ("statistics, products", f"{extra:.3g} FLOPs, {extra / forward:.1%} of the forward run"),
        ("statistics, memory traffic", f"{moved:.3g} bytes; {moved / 2e12 / 3600:.0f} h at 2 TB/s"),
        ("a state", f"{state / 2**20:.0f} MiB, whatever the corpus"),
        (
            f"merging {ranks} ranks",
            f"{nodes} nodes of other ranks: rank 0 reads {nodes * state / 2**30:.1f} GiB from the run folder",
        ),
        (
            "1M tokens: attention of the forward run",
            f"{attention:.3g} FLOPs, {attention / big.forward(million, million):.0%} of all",
        ),
        (
            "keys and values of all layers, bf16",
            f"{cache / 2**30:.0f} GiB; over {ranks} ranks {cache / ranks / 2**30:.1f} each",
        ),
        (f"sent per layer and rank, {ranks} ranks", f"{big.ring(million, ranks, 2) / 2**30:.2f} GiB forward"),
        (
            "computed per layer and rank meanwhile",
            f"{attention / big.layers / ranks / 2:.3g} FLOPs that a causal mask leaves; "
            f"{attention / big.layers / ranks / 2 / big.ring(million, ranks, 2):.0f} per byte sent",
        ),
    ]


def main() -> int:
    wrong = 0
    print("| counted in small runs | predicted | counted | |\n|---|---|---|---|")
    for what, predicted, found in counted():
        same = predicted == found
        wrong += not same
        print(f"| {what} | {predicted:,} | {found:,} | {'same' if same else f'{found / predicted - 1:+.2%}'} |")
    print("\n| on paper | |\n|---|---|")
    for what, said in paper():
        print(f"| {what} | {said} |")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
