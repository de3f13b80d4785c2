"""``python -m tests.oracles.fuzz_files``: damaged plans, profiles and cluster files are refused.

Mutations of real files have flipped bytes, a missing end, names that are dropped, renamed or
doubled, and values of another type: huge, negative, not a number, long, or deeply nested. Half of
the mutated files with a digest get a new valid digest. Reading such a file has to end soon, either
in an error of the library with a short message, or in a value that can be printed, read back and
used. The last line is one JSON object: for each kind the numbers of files, of accepted and refused
files, and of other errors; the characters of the longest message, and the CPU seconds of the
slowest file.
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
    """Read ``count`` mutations of files in turn, and use the accepted ones.

    Errors that are not the library's go to standard error.
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
            except Exception as error:  # any other error is a finding and is counted
                outcome = "others"
                sys.stderr.write(f"{kind} {number}: {type(error).__name__}: {str(error)[:300]}\n")
            slowest = max(slowest, process_time() - started)
            found["files"] += 1
            found[outcome] += 1
    return {**found, "longest": longest, "slowest_seconds": round(slowest, 3)}


def main() -> None:
    """Run, and print the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=10_000, help="of each kind")
    count = parser.parse_args().files
    print(json.dumps({kind: fuzz(kind, files, count) for kind, files in originals().items()}))


if __name__ == "__main__":
    main()
