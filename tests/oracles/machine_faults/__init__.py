"""Faults of machines and networks, and the ends of their jobs. Run as a module."""
