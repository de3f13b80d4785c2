"""Plans made from the points of frontiers."""
