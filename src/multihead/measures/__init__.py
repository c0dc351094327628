"""Measure heads: exact statistics of attention, streamed, in memory linear in tokens."""
