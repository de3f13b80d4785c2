"""The inputs of one training step: the values of a feed_dict, their shapes, the elements of data
pipelines, and generated batches."""
