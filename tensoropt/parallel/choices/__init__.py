"""Configurations that the search is offered for each operator."""
