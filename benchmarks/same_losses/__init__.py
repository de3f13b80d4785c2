"""Losses of whole trainings: plain TensorFlow's beside those of plans of every kind."""
