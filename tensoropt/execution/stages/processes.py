"""Messages between processes that each build the graph of another stage.

With them, scripts see equal values on all ranks. Where each process builds all stages (a mesh, or
all ranks in one process), every rank has all values, and nothing is exchanged here.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tensoropt.errors import RankMismatchError
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.agreement.name_counters import equalise_name_counters
from tensoropt.execution.stages.stage_ranks import Pipeline

__all__ = ["StageProcesses"]


class StageProcesses:
    """The processes of a pipeline. All of them make the same calls.

    Args:
        pipeline: the stages.
        agreement: between all ranks.

    Attributes:
        pipeline, agreement: see above.
        stage: the stage that this process emits; None where it emits all stages.
    """

    def __init__(self, pipeline: Pipeline, agreement: Agreement) -> None:
        self.pipeline = pipeline
        self.agreement = agreement
        self._everyone = pipeline.everyone
        self.stage = None if pipeline.everyone is None else pipeline.here

    def fed(
        self, feeds: Mapping[str, Any], batch_placeholders: Collection[str]
    ) -> Mapping[str, Any]:
        """The values to feed in all stages: the first rank's, except for batches."""
        names = sorted(name for name in feeds if name not in batch_placeholders)
        if self._everyone is None or not names:
            return feeds
        values = [np.asarray(feeds[name], order="C") for name in names]
        axes = tuple(range(len(self._everyone.mesh.axes)))
        shared = self._everyone.share(values, axes)
        return {**feeds, **dict(zip(names, shared, strict=True))}

    def everywhere(
        self, call: str, values: dict[str, Any], owners: Mapping[str, int]
    ) -> dict[str, Any]:
        """Values on every rank.

        Args:
            call: the call that the values are for.
            values: by name; at least those whose owners are in this process.
            owners: for each value that not every rank has, the rank that has it.
        """
        if self._everyone is None or not owners:
            return values
        rank = self._everyone.rank
        owned = {name: np.asarray(values[name]) for name in owners if owners[name] == rank}
        described = self.agreement.gather(call, {n: _described(x) for n, x in owned.items()})
        found: dict[str, Any] = {}
        for name, owner in owners.items():
            dtype, shape, texts = described[owner][name]
            if texts is not None:
                value = np.empty(len(texts), object)
                value[:] = [bytes.fromhex(text) for text in texts]
                value = value.reshape(shape)
            else:
                value = owned.get(name, np.empty(shape, tf.as_dtype(dtype).as_numpy_dtype))
                value = np.asarray(self._everyone.group.broadcast(value, owner))
            found[name] = value if shape or call == "variables" else value[()]
        return found

    def equalise_names(self, call: str) -> None:
        """Bring TensorFlow's counters of names to the same values.

        Processes of different stages build different operations, so their counters drift apart.

        Args:
            call: the call in which they were built.
        """
        if self._everyone is not None:
            equalise_name_counters(self.agreement, call)

    def check_order(self, lines: Sequence[str]) -> None:
        """Agree on the order of all stages' operators."""
        if self._everyone is not None and self.agreement.compares:
            self.agreement.check("the order of a pipeline's step", lines)

    def check_collectives(self, records: Sequence[str]) -> None:
        """Agree on the collectives of a program, which the ranks of a stage have in common."""
        call = "the collectives of this run"
        if self.stage is None:
            self.agreement.check(call, records)
        else:
            self.agreement.check_parts(call, self.stage, records)

    def raise_everywhere(self, call: str, error: RankMismatchError | None) -> None:
        """Raise an error that the ranks of some stage have found, on all ranks.

        Raises:
            RankMismatchError: the first stage's.
        """
        if self._everyone is None:
            if error is not None:
                raise error
            return
        errors = self.agreement.gather(call, "" if error is None else str(error))
        self.equalise_names(call)
        first = next(filter(None, errors), "")
        if first:
            raise RankMismatchError(first)


def _described(value: np.ndarray[Any, Any]) -> tuple[str, list[int], list[str] | None]:
    """Type and shape of a value, and its elements where they are strings."""
    texts = None
    if value.dtype.kind in "OSU":
        texts = [tf.compat.as_bytes(text).hex() for text in value.reshape(-1)]
    return ("string" if texts is not None else value.dtype.name), list(value.shape), texts
