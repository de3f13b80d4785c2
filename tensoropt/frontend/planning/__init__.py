"""From a script's graph to a plan: options, the search on the first rank, checks of a plan, and
candidates that are measured before one is adopted."""
