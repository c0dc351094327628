"""Importance of heads: how much worse the model gets without each."""
