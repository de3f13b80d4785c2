"""Branches of a step run at the same time, on devices of their own (Unity, section 5.2)."""
