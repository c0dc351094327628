"""Parameters, FLOPs and memory of attention."""
