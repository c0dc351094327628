"""Past one process: corpora over ranks, and models over ranks, on torch.distributed."""
