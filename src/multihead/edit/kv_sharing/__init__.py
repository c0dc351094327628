"""Heads come to share keys and values: moments of their inputs, clusters, one low-rank map per cluster."""
