"""Checkpoints of a job: their files, and the slices that each rank writes and reads."""
