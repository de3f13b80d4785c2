"""An interpreter for ranks that start at once, for the oracles that start many jobs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

__all__ = ["forked_interpreter"]

_FORKSERVER = Path(__file__).resolve().parents[1] / "forkserver"


@contextmanager
def forked_interpreter(environment: Mapping[str, str]) -> Iterator[list[str | Path]]:
    """The command that stands for Python, see ``tests/forkserver/``.

    Args:
        environment: variables that are added to this process's, of the server; ``PYTHONPATH`` is
            one of them.
    """
    with tempfile.TemporaryDirectory() as folder:
        server = [sys.executable, str(_FORKSERVER / "server.py"), "0", str(os.getpid())]
        with (Path(folder) / "0.log").open("w") as log:
            subprocess.run(
                server,
                cwd=folder,
                check=True,
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        (Path(folder) / "1").symlink_to("0")  # it serves even and odd ranks
        yield [sys.executable, "-I", "-S", _FORKSERVER / "client.py", folder]
