"""What the model loses without a head."""
