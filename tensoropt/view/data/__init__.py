"""The data of a view, by what it tells of a plan."""
