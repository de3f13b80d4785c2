"""``python -m tests.oracles.fuzz_files``: damaged plans, profiles and cluster files are refused.

Real files are mutated: bytes flipped, the end cut off, names dropped, renamed or doubled, values of
another type, huge, negative or no number at all, long, or nested deeply. Half of those with a
digest are signed anew, as somebody would who knows how. Reading one ends in an error of the
library's own with a short message, and soon, or in a value that works: it can be printed, read back
and used. The last line is one JSON object: per kind how many files there were, how many were
accepted and refused, and how many ended in another error; the characters of the longest message and
the CPU seconds of the slowest file.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from time import process_time
from typing import Any

from tensoropt.errors import TensorOptError
from tests.oracles.fuzz_files.mutations import mutated
from tests.oracles.fuzz_files.originals import originals
from tests.oracles.fuzz_files.use import READ_AND_USED

__all__ = ["fuzz", "main"]


def fuzz(kind: str, files: list[dict[str, Any]], count: int) -> dict[str, float]:
    """Read, and use what is accepted of, so many mutations of files in turn.

    Errors that are not the library's own are written to standard error.
    """
    found = {"files": 0, "accepted": 0, "refused": 0, "others": 0}
    longest, slowest = 0, 0.0
    read_and_used = READ_AND_USED[kind]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"{kind}.json"
        for number in range(count):
            path.write_bytes(mutated(files[number % len(files)], number))
            started = process_time()
            try:
                read_and_used(path)
                outcome = "accepted"
            except TensorOptError as error:
                outcome = "refused"
                longest = max(longest, len(str(error)))
            except Exception as error:  # any other error is a finding, which is counted
                outcome = "others"
                sys.stderr.write(f"{kind} {number}: {type(error).__name__}: {str(error)[:300]}\n")
            slowest = max(slowest, process_time() - started)
            found["files"] += 1
            found[outcome] += 1
    return {**found, "longest": longest, "slowest_seconds": round(slowest, 3)}


def main() -> None:
    """Run, and end with the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000, help="of each kind")
    count = parser.parse_args().files
    print(json.dumps({kind: fuzz(kind, files, count) for kind, files in originals().items()}))


if __name__ == "__main__":
    main()
