"""``python -m tensoropt.elastic.idle_priority LIFE tensoropt.frontend.planning.ahead < MESSAGE``.

Searches plans for the next start of a job, and prints a line for each plan.
"""

from __future__ import annotations

import sys

from tensoropt.frontend.planning.ahead.message import read_message
from tensoropt.frontend.planning.ahead.search import search_ahead
from tensoropt.search.threads import use_at_most

if __name__ == "__main__":
    use_at_most(1)
    for line in search_ahead(*read_message(sys.stdin.buffer)):
        print(f"tensoropt: {line}", flush=True)
