"""Atomic components grouped into balanced, convex blocks (RaNNC, section III-B)."""
