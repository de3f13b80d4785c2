"""``python -m tensoropt.elastic.idle_priority tensoropt.frontend.planning.ahead LIFE < MESSAGE``.

Searches plans for the next start of a job. The process ends when the pipe LIFE, an open descriptor
of it, does. It prints a line for each plan.
"""

from __future__ import annotations

import sys

from tensoropt.frontend.planning.ahead.message import read_message
from tensoropt.frontend.planning.ahead.search import end_with, search_ahead
from tensoropt.search.threads import use_at_most

if __name__ == "__main__":
    end_with(int(sys.argv[1]))
    use_at_most(1)
    for line in search_ahead(*read_message(sys.stdin.buffer)):
        print(f"tensoropt: {line}", flush=True)
