"""Stages of consecutive blocks, their devices and microbatches (RaNNC, section III-C)."""
