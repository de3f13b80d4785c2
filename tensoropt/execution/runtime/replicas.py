"""The check that ranks which store the same part of a variable have the same values.

Each rank computes replicated values itself, and they stay equal because all ranks compute alike. If
a rank computed differently (a kernel whose results depend on its threads, a Python function that
draws random numbers itself), every rank would train another model, without an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from collectives.buffers import as_bytes, contiguous
from collectives.watchdog import about
from tensoropt.errors import RankMismatchError
from tensoropt.execution.agreement.agreement import listed
from tensoropt.execution.world.variable_access import read_shards
from tensoropt.execution.world.variables import VariableStore
from tensoropt.execution.world.world import World

__all__ = ["CHECK_VARIABLE", "Replicas"]

CHECK_VARIABLE = "TENSOROPT_CHECK_REPLICAS_EVERY"
"""Environment variable: the number of steps between two checks; 0 for no checks."""

_DIGEST_BYTES = 8
_READ_BYTES = 1 << 26  # the most bytes of variables that one run of the session reads


class Replicas:
    """Compares the variables of a session between ranks."""

    def __init__(self, world: World, target: tf.Graph) -> None:
        self._world = world
        self._target = target
        self._reads: dict[str, list[tf.Tensor]] = {}

    def check(
        self,
        variables: VariableStore,
        dtypes: dict[str, tf.DType],
        session: tf.compat.v1.Session,
    ) -> None:
        """Compare values that more than one rank holds, bit for bit. All ranks call this.

        Args:
            variables: the shards of the variables.
            dtypes: the dtype of each variable to compare, by operator name. All have values.
            session: the session with the values.

        Raises:
            RankMismatchError: on every rank, naming the first variable that differs.
        """
        layouts, mesh = variables.layouts, self._world.mesh
        names = [n for n in sorted(dtypes) if mesh.pieces(layouts[n].axes) < mesh.size]
        if not names:
            return
        with self._target.as_default():
            for name in names:
                if name not in self._reads:
                    self._reads[name] = read_shards(variables[name], dtypes[name])
        digests = np.zeros((len(self._world.ranks), len(names), _DIGEST_BYTES), np.uint8)
        for position, number, value in self._values(names, session):
            digests[position, number] = np.frombuffer(_digest(value), np.uint8)
        with about("the check that replicas are equal"):
            of_all = self._world.gathered(digests)
        for number, name in enumerate(names):
            self._compare(name, [row.tobytes() for row in of_all[:, number]], layouts[name].axes)

    def _values(
        self, names: Sequence[str], session: tf.compat.v1.Session
    ) -> Iterator[tuple[int, int, Any]]:
        """Yield the shards of this process: rank's position, variable's number, and value."""
        reads = [
            (position, number, read)
            for number, name in enumerate(names)
            for position, read in enumerate(self._reads[name])
        ]
        while reads:
            count, size = 0, 0
            while count < len(reads) and (not count or size < _READ_BYTES):
                _, _, read = reads[count]
                size += (read.shape.num_elements() or 0) * read.dtype.size
                count += 1
            at_once, reads = reads[:count], reads[count:]
            values = session.run([read for _, _, read in at_once])
            for (position, number, _), value in zip(at_once, values, strict=True):
                yield position, number, value

    def _compare(self, name: str, digests: Sequence[bytes], axes: Sequence[int]) -> None:
        mesh = self._world.mesh
        for piece in range(mesh.pieces(axes)):
            ranks = [rank for rank in range(mesh.size) if mesh.piece(rank, axes) == piece]
            of_ranks = [digests[rank] for rank in ranks]
            usual = max(of_ranks, key=of_ranks.count)
            odd = [rank for rank in ranks if digests[rank] != usual]
            if odd:
                first = self._world.first
                differing = listed(first + rank for rank in odd)
                agreeing = listed(first + rank for rank in ranks if rank not in odd)
                raise RankMismatchError(
                    "ranks that hold the same part of a variable have the same values. Got "
                    f"different values of {name!r} on {differing} than on {agreeing}. Find the "
                    "operator that ranks compute differently (a Python function that draws or "
                    "reads data itself, a kernel whose results depend on threads or the machine); "
                    f"{CHECK_VARIABLE}=0 turns the check off."
                )


def _digest(value: Any) -> bytes:
    array = np.asarray(value)
    if array.dtype == object:  # strings
        return hashlib.blake2b(repr(array.tolist()).encode(), digest_size=_DIGEST_BYTES).digest()
    return hashlib.blake2b(as_bytes(contiguous(array)).data, digest_size=_DIGEST_BYTES).digest()
