"""Checkpoints of a job: files, slices and who writes them."""
