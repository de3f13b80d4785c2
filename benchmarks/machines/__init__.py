"""The time of training steps on several machines."""
