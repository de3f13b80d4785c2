"""Messages between processes that each emit one stage of a pipeline.

With these messages, scripts see equal values on all ranks. If each process emits all stages (a
mesh, or all ranks in one process), every rank has all values, and no messages are sent here.
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
from tensoropt.execution.world.shares import Share

__all__ = ["StageProcesses"]


class StageProcesses:
    """The processes of a pipeline. All of them make the same calls.

    Attributes:
        pipeline, agreement: see above.
        stage: the stage that this process emits; None if it emits all stages.
    """

    def __init__(self, pipeline: Pipeline, agreement: Agreement) -> None:
        self.pipeline = pipeline
        self.agreement = agreement
        self._everyone = pipeline.everyone
        self.stage = None if pipeline.everyone is None else pipeline.here

    def same_feeds(
        self, feeds: Mapping[str, Any], batch_placeholders: Collection[str]
    ) -> Mapping[str, Any]:
        """Return the values to feed: batches and rows of this rank, and the first rank's other
        values."""
        names = sorted(
            name
            for name, value in feeds.items()
            if name not in batch_placeholders and not isinstance(value, Share)
        )
        if self._everyone is None or not names:
            return feeds
        values = [np.asarray(feeds[name], order="C") for name in names]
        axes = tuple(range(len(self._everyone.mesh.axes)))
        shared = self._everyone.share(values, axes)
        return {**feeds, **dict(zip(names, shared, strict=True))}

    def broadcast(
        self, call: str, values: dict[str, Any], owners: Mapping[str, int]
    ) -> dict[str, Any]:
        """Send values to all ranks, and return all values.

        Args:
            call: the name of the call that needs the values.
            values: values by name; at least those that this process has to send.
            owners: for each value that only one rank has, this rank.
        """
        if self._everyone is None or not owners:
            return values
        rank = self._everyone.rank
        owned = {name: np.asarray(values[name]) for name in owners if owners[name] == rank}
        described = self.agreement.gather(call, {n: _described(x) for n, x in owned.items()})
        everywhere: dict[str, Any] = {}
        for name, owner in owners.items():
            dtype, shape, texts = described[owner][name]
            if texts is not None:
                value = np.empty(len(texts), object)
                value[:] = [bytes.fromhex(text) for text in texts]
                value = value.reshape(shape)
            else:
                value = owned.get(name, np.empty(shape, tf.as_dtype(dtype).as_numpy_dtype))
                value = np.asarray(self._everyone.group.broadcast(value, owner))
            everywhere[name] = value if shape or call == "variables" else value[()]
        return everywhere

    def equalise_names(self, call: str) -> None:
        """Advance TensorFlow's counters of names to the same values on all ranks.

        Processes of different stages emit different operations, so their counters differ.

        Args:
            call: the text for these operations, for error messages.
        """
        if self._everyone is not None:
            equalise_name_counters(self.agreement, call)

    def check_order(self, lines: Sequence[str]) -> None:
        """Check that all ranks have the same order of the operators of all stages."""
        if self._everyone is not None and self.agreement.compares:
            self.agreement.check("the order of a pipeline's step", lines)

    def check_collectives(self, records: Sequence[str]) -> None:
        """Check that all ranks of a stage have the same collectives in a program."""
        call = "the collectives of this run"
        if self.stage is None:
            self.agreement.check(call, records)
        else:
            self.agreement.check_parts(call, self.stage, records)

    def raise_everywhere(self, call: str, error: RankMismatchError | None) -> None:
        """Raise an error of one stage on all ranks. All ranks call this.

        Args:
            call: the name of the check that found the error.
            error: the error of this rank's stage, or None.

        Raises:
            RankMismatchError: the error of the first stage that has one.
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
    """Return type and shape of a value, and its elements if they are strings."""
    texts = None
    if value.dtype.kind in "OSU":
        texts = [tf.compat.as_bytes(text).hex() for text in value.reshape(-1)]
    return ("string" if texts is not None else value.dtype.name), list(value.shape), texts
