"""Graphs to search, in flat arrays."""
