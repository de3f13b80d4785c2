"""Approximate frontiers with a proven gap, from supported strategies on the convex hull."""
