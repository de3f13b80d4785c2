"""The evaluation of the TensorOpt paper: its models, its cluster, its figures and its claims."""
