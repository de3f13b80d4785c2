"""Tries TensorFlow and the things that need it; the doctor runs this in a process of its own.

Each line of the output is a JSON object. A later step may end the process, and the lines of earlier
ones stay.
"""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Try one thing after another."""
    import tensorflow as tf

    total = float(tf.reduce_sum(tf.matmul(tf.ones([2, 3]), tf.ones([3, 2]))))
    gpus = len(tf.config.list_physical_devices("GPU"))
    _write("tensorflow", version=tf.__version__, is_right=total == 12, gpus=gpus)
    _write("compiler", **_compiled())
    _write("horovod", **_horovod())


def _write(what: str, **values: Any) -> None:
    print(json.dumps({"what": what, **values}), flush=True)


def _compiled() -> dict[str, str]:
    from collectives.errors import NativeError
    from collectives.native.build import library
    from collectives.native.transport_library import SOURCES, loaded

    try:
        path: Path = library("collectives", SOURCES)
        loaded(path)
    except NativeError as error:
        return {"error": str(error)}
    return {"file": str(path)}


def _horovod() -> dict[str, str]:
    from collectives.horovod.module import INSTALL

    try:
        module = import_module("horovod.tensorflow")
    except ImportError as error:
        return {"absent": str(error), "install": INSTALL}
    if not module.mpi_built():
        return {"error": "it was built without MPI", "install": INSTALL}
    return {"version": import_module("horovod").__version__}


if __name__ == "__main__":
    main()
