"""The models and the cluster of the TensorOpt paper's evaluation."""
