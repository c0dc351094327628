"""Heads come to share keys and values, or to be one."""
