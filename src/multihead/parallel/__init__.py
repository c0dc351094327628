"""Attention layers over several ranks: heads by tensor parallelism, tokens by context parallelism."""
