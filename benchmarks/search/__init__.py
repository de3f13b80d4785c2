"""The time of searches for the paper's models (its Table 3) and for other graphs."""
