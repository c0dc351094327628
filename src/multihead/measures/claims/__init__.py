"""Every statement of the theory, computed on a real layer: `multihead.claims`."""
