"""SHOW, served: the page of a model over a local server, its maps computed on demand."""
