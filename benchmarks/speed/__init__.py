"""How long steps take: ours, those of plain TensorFlow, and Horovod's."""
