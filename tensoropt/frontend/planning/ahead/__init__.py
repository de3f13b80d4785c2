"""Plans for the starts after a loss, which a process of the first rank searches beside the job."""
