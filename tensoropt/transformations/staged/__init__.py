"""A step as a pipeline of stages: which operators each stage runs, in which order, on what."""
