"""Types of terms: ranks and dimensions, and layouts of tensors on an axis of devices."""
