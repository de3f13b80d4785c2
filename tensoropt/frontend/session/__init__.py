"""Sessions that run fetches, the choice of the executor for a run, and TensorFlow's hooks and
supervisors on these sessions."""
