"""The stages of a pipeline: their ranks, their messages and their emitted step."""
