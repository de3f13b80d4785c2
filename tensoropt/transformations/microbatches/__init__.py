"""Microbatches: a step's batch in parts, computed one after another and summed up."""
