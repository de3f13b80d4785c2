"""What one training step is fed: the values of a feed_dict, their shapes, the elements of data
pipelines, and generated batches."""
