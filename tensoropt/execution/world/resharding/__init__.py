"""Resharding in an emitted graph: its steps as operators of the ranks."""
