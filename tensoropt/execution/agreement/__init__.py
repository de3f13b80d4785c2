"""What ranks compare with each other before and after a step."""
