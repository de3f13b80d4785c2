"""Sets of points in time and memory: reduced, merged, kept in tables, and their convex hull."""
