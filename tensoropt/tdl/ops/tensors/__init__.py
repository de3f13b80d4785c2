"""Operators that move, join, cut and look up elements."""
