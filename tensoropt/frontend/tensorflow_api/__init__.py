"""Changes of TensorFlow's interface: graph mode, recorded gradients, and names that TensorOpt adds
or shares."""
