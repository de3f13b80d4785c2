"""Operators of algebra: element by element, products, sums, transforms."""
