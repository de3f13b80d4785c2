"""The spaces: each module makes the offers of one way to run a step."""
