"""The accuracy of predicted costs: the paper's Table 2, on this machine."""
