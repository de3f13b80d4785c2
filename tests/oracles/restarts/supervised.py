"""``tensoropt run`` with another interpreter for the ranks, and with hosts asked more often.

    python -m tests.oracles.restarts.supervised WORD[,WORD]... ARGUMENT...

The words, separated by commas, stand for Python.
"""

from __future__ import annotations

import sys

from tensoropt.cli.main import main
from tensoropt.cli.run import INTERPRETER
from tensoropt.elastic import supervisor

__all__: list[str] = []

PROBE_SECONDS = 2.0

if __name__ == "__main__":
    INTERPRETER[:] = sys.argv[1].split(",")
    vars(supervisor)["_PROBE_SECONDS"] = PROBE_SECONDS
    sys.exit(main(sys.argv[2:]))
