"""Where one of two ranks cannot have the native operator, or is told not to, none has it.

    mpirun -np 2 python native_fallback.py

Prints per case what each rank found; notes go to standard error.
"""

from __future__ import annotations

import json
import os
import sys

import numpy as np

import collectives
from collectives import TransportError
from collectives.native import transport, window
from collectives.native.transport import SWITCH, native_transport

CASES: dict[str, dict[str, str]] = {
    "compiler": {"CXX": "false"},
    "off": {SWITCH: "0"},
    "unknown": {SWITCH: "maybe"},
    "none": {},
}


def found(world: collectives.Group) -> str:
    try:
        return "native" if native_transport(world) else "Python"
    except TransportError as error:
        return str(error)


def main() -> None:
    world = collectives.world()
    rows = {}
    for case, variables in CASES.items():
        kept = dict(os.environ)
        if world.rank == 1:
            os.environ.update(variables)
        if case == "none":
            window.CHUNK_BYTES = 1 << 50  # more than any machine has
        if world.rank == 0:
            sys.stderr.write(f"case {case}\n")
            sys.stderr.flush()
        rows[case] = world.allgather_object(found(world))
        transport._transports.clear()
        os.environ.clear()
        os.environ.update(kept)
    np.testing.assert_array_equal(world.allreduce(np.ones(3)), 2)
    if world.rank == 0:
        print(json.dumps(rows))


main()
