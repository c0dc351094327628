"""Attention layers over several ranks: tensor parallelism splits heads, context parallelism splits tokens."""
