"""Rewriting and parallelizing jointly: Unity's evaluation on a simulated Summit (section 6)."""
