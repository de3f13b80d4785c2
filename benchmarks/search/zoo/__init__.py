"""Training graphs of many kinds for the search; none is a model of the paper."""
