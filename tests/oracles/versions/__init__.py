"""A matrix of versions of Python and TensorFlow, each tried in an environment of its own."""
