"""Planning from a script's graph: options, the search on the first rank, the checks of a plan, and
measurements of candidate plans."""
