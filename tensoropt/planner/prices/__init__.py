"""The predicted time of a step as it is executed, and its peak of memory."""
