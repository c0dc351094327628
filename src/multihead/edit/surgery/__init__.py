"""A layer of a model really gets other heads: smaller matrices, no masks."""
