"""Averages over devices of the statistics of batch normalisations, for all layers at once."""

from __future__ import annotations

import tensorflow as tf

from tensoropt.execution.edges.gradient_reduction import reduced_as_one
from tensoropt.execution.edges.program_context import ProgramContext
from tensoropt.graph.differentiation import differentiated_inputs
from tensoropt.graph.operator import TensorName
from tensoropt.parallel.buckets import Sums, elementwise_sums
from tensoropt.parallel.layout import Layout

__all__ = ["StatisticSums"]

_Read = tuple[TensorName, Layout]


class StatisticSums:
    """Adds up statistics over devices when the first statistic is read.

    One collective adds up all statistics that are emitted by then and are read in the same layout.
    Readers are emitted after all statistics (`tensoropt.graph.ordering.statistics_last`). If the
    script differentiates a statistic, the statistic has an edge of its own.
    """

    def __init__(self, context: ProgramContext) -> None:
        self._context = context
        graph, strategy = context.graph, context.strategy
        differentiated = differentiated_inputs(graph)
        self._reads: dict[_Read, Sums] = {}
        for operator in graph:
            for number, tensor in enumerate(operator.inputs):
                if number in differentiated.get(operator.name, ()):
                    continue
                if strategy.derivations[tensor.operator].is_averaged(tensor.index):
                    target = strategy.input_slot(operator, number).forward
                    sums = self._sums(tensor, target)
                    if sums is not None:
                        self._reads[tensor, target] = sums
        self._added: dict[_Read, list[tf.Tensor]] = {}

    def read(self, tensor: TensorName, target: Layout) -> list[tf.Tensor] | None:
        """Return a statistic's shards in a layout, one per rank; None for all other tensors."""
        sums = self._reads.get((tensor, target))
        if sums is not None and (tensor, target) not in self._added:
            self._add(sums)
        return self._added.get((tensor, target))

    def _sums(self, tensor: TensorName, target: Layout) -> Sums | None:
        spec = self._context.graph.spec(tensor)
        source = self._context.strategy.output_slot(tensor).forward
        return elementwise_sums(self._context.plan_steps(spec.shape, spec.dtype, source, target))

    def _add(self, sums: Sums) -> None:
        """Add up all emitted statistics. The kernel's dtype is float32, so theirs is too."""
        emitted = self._context.emitted
        reads = [
            (tensor, target)
            for (tensor, target), of_read in self._reads.items()
            if of_read == sums
            and tensor.operator in emitted
            and (tensor, target) not in self._added
        ]
        shards = [emitted.shards(tensor) for tensor, _ in reads]
        label = f"sums_of_{len(reads)}_statistics"
        added = reduced_as_one(self._context.world, shards, sums, label)
        self._added.update(zip(reads, added, strict=True))
