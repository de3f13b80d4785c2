"""Offers: ways to run a step, each with its memory, its price and its plan."""
