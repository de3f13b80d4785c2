"""Searches for the least weighted sum of time and memory: one number for each choice."""
