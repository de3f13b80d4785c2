"""Batches for steps: shares of data sets, and rows that the first rank sends."""
