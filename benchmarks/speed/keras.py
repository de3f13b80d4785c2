"""``python -m benchmarks.speed.keras``: milliseconds of a training step of Keras's ``fit``.

Four dense layers of 2048 are trained by SGD with momentum, on two ranks with one core each: ``fit``
of a model that was passed to `tensoropt.parallelize`, the same network as a graph, and ``fit`` with
Horovod (`benchmarks.speed.measure_keras`). The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.launcher import mpirun

__all__: list[str] = []


def main() -> None:
    """Start the ranks and print the first rank's output."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed.keras", description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "times.json"
        program = [sys.executable, "-m", "benchmarks.speed.measure_keras", str(result)]
        environment = {**os.environ, "KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3"}
        command = [mpirun(), "-np", str(options.ranks), *program]
        subprocess.run(
            command, check=True, stdin=subprocess.DEVNULL, stdout=sys.stderr, env=environment
        )
        found = json.loads(result.read_text())
    for way, milliseconds in found["milliseconds"].items():
        print(f"{way} {milliseconds:.1f} ms a step")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
