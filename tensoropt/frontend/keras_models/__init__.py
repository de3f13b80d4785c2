"""Keras models whose ``fit``, ``evaluate`` and ``predict`` run in parallel."""
