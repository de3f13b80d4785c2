"""``python -m tensoropt.elastic.idle_priority MODULE``: a module on cores that nothing else uses.

Linux's idle class gets a core only while no other process wants it. Elsewhere the process has the
lowest priority of the usual class. The priority is set before the module loads TensorFlow.
"""

from __future__ import annotations

import os
import runpy
import sys

__all__ = ["give_way", "main"]


def give_way() -> None:
    """Give this process, and the threads that it starts, the lowest priority."""
    os.nice(19)
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def main() -> None:
    """Run the module that the command line names, with the rest of the command line."""
    give_way()
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
