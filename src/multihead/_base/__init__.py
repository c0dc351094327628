"""Shared by every folder: argument checks, shapes, colours, HTML fragments."""
