"""The time of an epoch around its steps: input, evaluation, summaries and checkpoints."""
