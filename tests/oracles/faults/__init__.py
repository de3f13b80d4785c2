"""Faults on purpose: what goes wrong on ranks, and how the job ends. Run as a module."""
