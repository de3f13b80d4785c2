"""The time of training steps: ours, plain TensorFlow's and Horovod's."""
