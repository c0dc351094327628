"""What a cut cost, in quality and in time."""
