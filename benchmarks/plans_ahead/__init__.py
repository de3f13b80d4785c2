"""The time to the first step after the loss of a machine, with and without plans searched ahead."""
