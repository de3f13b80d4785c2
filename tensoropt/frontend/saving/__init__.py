"""What TensorFlow 2 saves with around parallel steps: checkpoints, models and summaries."""
