"""Graphs to be searched, in flat arrays."""
