"""Substitutions in logical graphs: matching their sources, and building their targets."""
