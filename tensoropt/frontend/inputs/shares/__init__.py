"""The rows of a global batch that one process needs, and data sets that make no other rows."""
