"""How a model is stored: one small class per format."""
