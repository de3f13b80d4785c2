"""Texts and tables of a plan's view."""
