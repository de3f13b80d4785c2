"""Microbatches: parts of a step's batch, computed one after another and summed up."""
