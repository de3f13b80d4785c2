"""What changes in TensorFlow's own interface: graph mode, recorded gradients, and names that
TensorOpt adds or shares."""
