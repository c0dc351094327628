"""Quality against heads kept."""
