"""Rewriting and parallelizing a graph jointly, by substitutions (Unity, sections 3 to 5)."""
