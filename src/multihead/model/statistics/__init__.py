"""Statistics of attention rows without the attention matrix: blocks of complete rows, sums that merge."""
