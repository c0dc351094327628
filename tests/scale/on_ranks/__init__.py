"""Checks that run on several ranks; each compares what they compute with one process."""
