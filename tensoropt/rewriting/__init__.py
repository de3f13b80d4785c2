"""Substitutions: pairs of terms that are proven to be equal (Unity, sections 3 and 4)."""
