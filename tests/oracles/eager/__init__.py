"""Steps of eager TensorFlow against TensorFlow alone. `tests.oracles.equality` is of graph mode."""
