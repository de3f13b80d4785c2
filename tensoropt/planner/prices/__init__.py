"""What a step takes: its time as it is executed, and its peak of memory."""
