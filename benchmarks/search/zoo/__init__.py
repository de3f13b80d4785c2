"""Training graphs of many kinds for the search, none of which is a model of the paper."""
