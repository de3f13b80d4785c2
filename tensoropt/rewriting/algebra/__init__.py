"""Types of terms: ranks and dimensions, and how tensors lie on an axis of devices."""
