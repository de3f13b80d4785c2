"""Damaged plans, profiles and cluster files; see `benchmarks.fuzz_files.__main__`."""
