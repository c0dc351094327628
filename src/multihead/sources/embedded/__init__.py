"""The small language model that comes with the package, and all that it was made of: words, language, training."""
