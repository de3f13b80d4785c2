"""Certificates: costs are those of equation 3, and exact frontiers are exact."""
