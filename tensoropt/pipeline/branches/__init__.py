"""Branches of a step side by side, on devices of their own (Unity, section 5.2)."""
