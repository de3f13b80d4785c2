"""The ranks of this process: their communication, shards and variables."""
