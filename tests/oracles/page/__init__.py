"""The page of a plan in a browser: `python -m tests.oracles.page`."""
