"""``python -m tests.machines run``: a job over simulated machines.

    python -m tests.machines run --machines 2 --ranks 4 --link "rate 1gbit delay 1ms" -- python t.py

The machines are m1, m2, ..., each with network, host name, ``/dev/shm``, IPC and process numbers of
its own, and with this file system. Ranks are divided evenly; ``--cores 0 0,1`` are the cores of m1
and of m2. Each packet has the delay on its way, so an answer comes after twice the delay. Needs
root, or a system that lets users make namespaces. All is gone when the command ends.
"""

from __future__ import annotations

import argparse
import signal
import sys
import threading

from tests.machines.links import Link
from tests.machines.machines import MachinesError, machines

__all__ = ["main"]


def main() -> int:
    """Run the job; the status is that of ``mpirun``."""
    first, _, rest = (__doc__ or "").partition("\n\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.machines",
        description=first,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run = parser.add_subparsers(required=True).add_parser("run", help="run a job over machines")
    run.add_argument("--machines", type=int, default=2)
    run.add_argument("--ranks", type=int, default=2, help="of all machines together")
    run.add_argument("--link", type=_link, default=Link(), help="of each machine")
    run.add_argument("--cores", nargs="+", type=_cores, help="of each machine, by default one each")
    run.add_argument("command", nargs="+", help="the command of each rank, after --")
    options = parser.parse_args()
    each, left = divmod(options.ranks, options.machines)
    if left or not each:
        parser.error(f"--ranks is a multiple of --machines. Got {options.ranks}.")
    if options.cores and len(options.cores) != options.machines:
        parser.error(f"--cores has a value for each machine. Got {len(options.cores)}.")
    try:
        with machines(options.machines, options.link, options.cores) as made:
            job = made.mpirun(each, options.command, is_quiet=False)
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, lambda number, _: job.signal(signal.Signals(number)))
            return job.wait(threading.TIMEOUT_MAX).status
    except MachinesError as error:
        sys.stderr.write(f"Machines cannot be made here: {error}\n")
        return 1


def _link(text: str) -> Link:
    try:
        return Link.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _cores(text: str) -> frozenset[int]:
    return frozenset(int(core) for core in text.split(","))


if __name__ == "__main__":
    sys.exit(main())
