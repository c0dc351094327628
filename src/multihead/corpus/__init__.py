"""The documents of a corpus, the batches made of them, and the one pass over these."""
