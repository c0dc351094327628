"""What a cut costs and gains: sizes, quality on held-out text, speed; the curve over sizes."""
