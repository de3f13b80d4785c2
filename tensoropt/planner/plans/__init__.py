"""From what was found to a plan."""
