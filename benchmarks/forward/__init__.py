"""CPU seconds and memory of a rank in evaluations and predictions, beside plain TensorFlow."""
