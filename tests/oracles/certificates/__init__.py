"""Certificates: that costs are those of equation 3, and that frontiers are the exact ones."""
