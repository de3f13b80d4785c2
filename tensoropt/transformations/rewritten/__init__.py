"""Substitutions applied to logical graphs: where they match, and what takes their place."""
