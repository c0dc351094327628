"""Parameters, FLOPs and bytes of attention."""
