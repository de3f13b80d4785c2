"""``python -m tensoropt.elastic.idle_priority LIFE MODULE``: a module on cores that nothing uses.

Linux's idle class gets a core only while no other process wants it. Elsewhere the process has the
lowest priority of the usual class. The process ends when the pipe LIFE, an open descriptor of it,
does. Both hold from the start on: at idle priority the module may load TensorFlow for minutes.
"""

from __future__ import annotations

import os
import runpy
import sys

from tensoropt.elastic.life import end_with

__all__ = ["give_way", "main"]


def give_way() -> None:
    """Give this process, and the threads that it starts, the lowest priority."""
    os.nice(19)
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main() -> None:
    """Run the module that the command line names, with the rest of the command line."""
    give_way()
    end_with(int(sys.argv[1]))
    del sys.argv[:2]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
