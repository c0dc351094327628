"""The rows of bench/see.py: contestants, sizes, and what must be reached. Imports no torch: threads come first."""

from __future__ import annotations

from dataclasses import dataclass, field

PLAIN, OURS, NOTHING = "plain sdpa forward", "capture, all statistics", "capture, nothing asked"
MAPS, FROM_MAPS = "HF eager, maps", "HF eager, maps + statistics"
LENS = "TransformerLens run_with_cache"
PEERS = (MAPS, FROM_MAPS, LENS)


@dataclass(frozen=True)
class Size:
    """One size of the GPT-2-small shape, and what is claimed of it."""

    tokens: int
    times: float  # our time may be so many times that of the plain forward
    faster: dict[str, float] = field(default_factory=dict[str, float])  # than these, so many times
    leaner: dict[str, float] = field(default_factory=dict[str, float])  # than these, in peak memory
    rounds: int = 21  # at most, for what is claimed
    dear_rounds: int = 7  # of contestants of whom nothing is claimed

    @property
    def name(self) -> str:
        return f"GPT-2 small, {self.tokens // 1024}k tokens"


SIZES = (
    Size(1024, 1.4),
    Size(2048, 1.6, dear_rounds=5),
    Size(4096, 1.8, faster={MAPS: 2.0}, leaner={MAPS: 8.0}, rounds=10, dear_rounds=3),
)
WITH_MAX = 2.2  # times the plain forward, max weight and participation included
MEMORY = 1.05  # our peak, of that of the plain forward

IDLE, IDLE_TOKENS, IDLE_TIMES, IDLE_ROUNDS = "nothing asked, 512 tokens", 512, 1.03, 70
NOISE = "the same twice, 512 tokens"

LONG, LONG_TOKENS, LONG_BYTES = "16k tokens, LLaMA-shaped stack", 16384, 4e9
