"""Which heads say the same."""
