"""Frontiers that were searched before, so that certificates can be had in portions."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np

from reproduction.paper.results import code_digest
from tensoropt.search import Frontier

__all__ = ["kept_frontier"]

_MODELS = Path(__file__).parent / "models.py"


def kept_frontier(folder: Path | None, name: str, search: Callable[[], Frontier]) -> Frontier:
    """A frontier of this code, searched only where it is not kept.

    Args:
        folder: made where there is none; None to keep nothing.
        name: of the frontier: a file's in the folder.
        search: finds it.
    """
    if folder is None:
        return search()
    folder.mkdir(parents=True, exist_ok=True)
    models = hashlib.sha256(_MODELS.read_bytes()).hexdigest()[:16]
    path = folder / f"{name}-{code_digest()}-{models}.npz"
    if path.exists():
        with np.load(path) as values:
            within = float(values["within"])
            return Frontier(
                values["memory"],
                values["time"],
                values["strategies"],
                exact=bool(values["exact"]),
                within=None if np.isnan(within) else within,
            )
    found = search()
    unfinished = path.with_suffix(".unfinished")
    with unfinished.open("wb") as file:
        np.savez(
            file,
            memory=found.memory,
            time=found.time,
            strategies=found.strategies,
            exact=found.exact,
            within=np.nan if found.within is None else found.within,
        )
    unfinished.replace(path)  # an interrupted run leaves nothing that looks whole
    return found
