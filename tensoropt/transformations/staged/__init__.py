"""Pipelines: the operators of each stage of a step, their order, and transfers between stages."""
