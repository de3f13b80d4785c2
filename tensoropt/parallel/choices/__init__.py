"""Configurations among which the search chooses, for each operator."""
