"""Strategies of other systems, and enumeration, to compare with."""
