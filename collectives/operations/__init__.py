"""The collectives as TensorFlow operations, one a file; `collectives` has the functions."""
