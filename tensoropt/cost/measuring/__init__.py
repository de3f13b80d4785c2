"""Measuring this machine: collectives, operators and overheads."""
