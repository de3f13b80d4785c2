"""Measurements of this machine: collectives, operators and overheads."""
