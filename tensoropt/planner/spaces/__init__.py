"""The ways to run a step, one module each."""
