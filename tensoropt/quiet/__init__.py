"""Few lines on the standard error of ranks: a plan, progress, warnings and errors."""
