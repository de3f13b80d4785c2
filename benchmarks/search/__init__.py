"""How long the search takes, on the paper's models (its Table 3)."""
