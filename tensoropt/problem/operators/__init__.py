"""Costs of nodes under each configuration: work, memory, and collectives inside operators."""
