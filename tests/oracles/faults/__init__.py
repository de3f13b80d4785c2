"""Faults on purpose: faults of ranks, and the ends of their jobs. Run as a module."""
