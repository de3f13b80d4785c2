"""Transformations of a step's graph: substitutions, microbatches and stages."""
