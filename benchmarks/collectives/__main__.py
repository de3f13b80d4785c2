"""``python -m benchmarks.collectives``: milliseconds of collectives, ours beside other ones.

At 2 and 4 ranks, with 4 KiB to 64 MiB a rank, the program times our collectives between ranks of
one machine, MPI's, Horovod's all-reduce if Horovod can be imported, and one memcpy of as many
bytes. It also times all-reduces in a graph, by our operator and by host calls. The last line is one
JSON object, by kind, ranks, bytes and way.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
from typing import Any

from benchmarks.collectives.measure import KINDS, SIZES, Times
from benchmarks.launcher import result_of
from tensoropt.report.text_table import table

__all__: list[str] = []


def main() -> None:
    """Run, print the times, and end with the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--bytes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    found: dict[str, dict[str, Any]] = {}
    for ranks in options.ranks:
        for kind, times in _measured(ranks, options.bytes, options.kinds).items():
            found.setdefault(kind, {})[str(ranks)] = times
            print(f"{kind}, {ranks} ranks: ms")
            print(_table(times))
    if importlib.util.find_spec("horovod") is None:
        print("without Horovod, which is not installed")
    print(json.dumps(found))


def _measured(ranks: int, sizes: list[int], kinds: list[str]) -> Times:
    # TensorFlow's tensors have pages of ordinary size, on which the speed of some copies depends.
    pages, arguments = {"NUMPY_MADVISE_HUGEPAGE": "0"}, [",".join(kinds), *sizes]
    times: Times = result_of("benchmarks.collectives.measure", arguments, ranks, pages)
    return times


def _table(times: dict[str, dict[str, float]]) -> str:
    ways = list(next(iter(times.values())))
    rows = [[f"{int(size):,}", *(f"{of[way]:.3f}" for way in ways)] for size, of in times.items()]
    return str(table(["bytes", *ways], rows, [True] * (1 + len(ways))))


if __name__ == "__main__":
    main()
