"""Saving around parallel steps with TensorFlow 2's functions: checkpoints, models, summaries."""
