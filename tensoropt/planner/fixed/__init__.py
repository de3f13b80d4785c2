"""Dimensions divided by hand: their words, their operators, and the check of a plan."""
