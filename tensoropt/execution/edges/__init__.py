"""Tensors on their way from one operator to another: resharded, summed, checked, gathered."""
