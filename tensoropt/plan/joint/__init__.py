"""Rewriting and parallelizing jointly: frontiers of rewritten graphs, and their union."""
