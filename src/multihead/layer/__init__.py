"""BUILD: the attention layer that every variant fits in."""
