"""The statements of the theory, each computed on a real layer."""
