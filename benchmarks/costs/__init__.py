"""How well costs are predicted: the paper's Table 2, on this machine."""
