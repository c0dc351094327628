"""The sweep: every model type of the installed transformers as a tiny random model, held against multihead."""
