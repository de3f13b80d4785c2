"""Comparisons between ranks, before and after a step."""
