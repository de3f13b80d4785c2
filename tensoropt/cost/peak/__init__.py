"""The peak memory of one rank: estimated, or computed from an emitted program."""
