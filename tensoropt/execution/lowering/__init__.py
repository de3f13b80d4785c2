"""A step's operators as TensorFlow operations at local shapes."""
