"""Whole values of variables on the first rank alone, which asks the other ranks for slices.

A rank that holds slices reads a batch of them, and sends it when the first rank asks. So no other
rank has copies of more than one batch of slices, and the first rank alone joins slices to wholes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from collectives import Group
from tensoropt.execution.agreement.agreement import Agreement
from tensoropt.execution.agreement.name_counters import equalise_name_counters
from tensoropt.execution.checkpoints.slices import SavedTensor, Slice, batches_of, slices_of
from tensoropt.execution.world.rank_session import RankSession
from tensoropt.execution.world.variables import VariableStore

__all__ = ["ValuesOnFirst"]

Array = np.ndarray[Any, Any]

_ASKS = np.zeros(1, np.uint8)


class ValuesOnFirst:
    """Brings whole values of an executor's variables to the first rank. All ranks call it.

    Args:
        session: the session with the variables.
        target: the graph of the session.
        ranks: the ranks that this process emits: its own, or all in a job of one process.
        agreement: the agreement between all ranks.
    """

    def __init__(
        self, session: RankSession, target: tf.Graph, ranks: Sequence[int], agreement: Agreement
    ) -> None:
        self._session = session
        self._target = target
        self._ranks = frozenset(ranks)
        self._agreement = agreement
        self._batches: dict[tuple[SavedTensor, ...], list[tuple[list[Slice], list[Any]]]] = {}

    def get(
        self, saved: Sequence[SavedTensor], variables: VariableStore, group: Group
    ) -> dict[str, Array]:
        """Return the whole values by name on the first rank, and nothing on the other ranks.

        Args:
            saved: the variables; all have values.
            variables: the store of the variables.
            group: the ranks of the job.
        """
        key = tuple(saved)
        if key not in self._batches:
            self._batches[key] = self._emitted(saved, variables)
        wholes = {}
        if group.rank == 0:
            wholes = {t.name: np.empty(t.extents, _numpy_dtype(t)) for t in saved}
        for batch, fetched in self._batches[key]:
            values = self._session.opened.run(fetched) if fetched else []
            if group.rank:
                _send(group, values)
                continue
            here = iter(values)
            for rank in dict.fromkeys(cut.rank for cut in batch):
                if rank not in self._ranks:
                    group.send(_ASKS, rank)
                for cut in batch:
                    if cut.rank == rank:
                        value = next(here) if rank in self._ranks else _received(group, cut)
                        wholes[cut.tensor.name][cut.region] = value
        return wholes

    def _emitted(
        self, saved: Sequence[SavedTensor], variables: VariableStore
    ) -> list[tuple[list[Slice], list[Any]]]:
        """Return the slices in batches, each with the tensors of the slices of this rank."""
        batches = []
        with self._target.as_default():
            for batch in batches_of(slices_of(saved, variables, is_spread=False)):
                here = [cut for cut in batch if cut.rank in self._ranks]
                tensors = [
                    cut.cut_from(variables.on(cut.tensor.variable, cut.rank)) for cut in here
                ]
                batches.append((batch, tensors))
        equalise_name_counters(self._agreement, "the reads of the first rank")
        return batches


def _send(group: Group, values: Sequence[Any]) -> None:
    """Send slices to the first rank once it asks."""
    if values:
        group.receive(_ASKS.shape, _ASKS.dtype, 0)
    for value in map(np.asarray, values):
        if value.size:
            group.send(value, 0)


def _received(group: Group, cut: Slice) -> Array:
    if 0 in cut.shape:
        return np.empty(cut.shape, _numpy_dtype(cut.tensor))
    return group.receive(cut.shape, _numpy_dtype(cut.tensor), cut.rank)


def _numpy_dtype(tensor: SavedTensor) -> np.dtype[Any]:
    return np.dtype(tf.as_dtype(tensor.dtype).as_numpy_dtype)
