"""Running fetches: sessions, the executor that a run takes, and TensorFlow's hooks and supervisors
on these sessions."""
