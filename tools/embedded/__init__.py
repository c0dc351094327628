"""Training of the embedded model: its language, the recipe, and what the trained model can do."""
