"""Transformations of a step's graph: rewriting, microbatches, stages."""
