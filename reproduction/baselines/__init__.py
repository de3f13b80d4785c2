"""Strategies of other systems to compare with, and enumeration."""
