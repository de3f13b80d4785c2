"""The peak memory of one rank: estimated, or followed through an emitted program."""
