"""Sets of points in memory and time: reduced, merged, kept in tables, and their convex hull."""
