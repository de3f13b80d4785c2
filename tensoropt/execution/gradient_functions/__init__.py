"""Gradient functions of operators that replace those of TensorFlow."""
