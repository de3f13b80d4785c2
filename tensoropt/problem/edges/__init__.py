"""Costs of edges: the slots at both ends, and the time and memory of each pair of slots."""
