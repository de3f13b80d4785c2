"""Damaged plans, profiles and cluster files; see `tests.oracles.fuzz_files.__main__`."""
