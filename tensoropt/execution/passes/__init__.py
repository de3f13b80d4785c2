"""Control dependencies that are added to an emitted graph."""
