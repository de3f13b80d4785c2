"""The values that all stages of a program share while it is emitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import tensorflow as tf

from tensoropt.execution.lowering.step_options import StepOptions
from tensoropt.execution.world.variables import VariableStore
from tensoropt.graph.backward_reads import BackwardReads

__all__ = ["Emission"]


@dataclass(frozen=True, slots=True, eq=False)
class Emission:
    """The source and the target of a program.

    Attributes:
        script: the script's TensorFlow graph; it has the attributes of the operators.
        target: the TensorFlow graph to emit into; it is the default graph during the emission.
        variables: the variables, which all programs in the target graph share.
        options: how steps are computed.
        unset: names of variables that have no value before this program.
        checked: names of the script's operators that check values, see `Checks`.
        reads: finds the tensors that gradients of the script's operators read; called only where
            an operator is computed again.
        sizes: known shapes at which reshardings of tensors with open extents are planned, by open
            shape; see `plans_at`.
    """

    script: tf.Graph
    target: tf.Graph
    variables: VariableStore
    options: StepOptions
    unset: frozenset[str] = frozenset()
    checked: frozenset[str] = frozenset()
    reads: Callable[[], BackwardReads] = BackwardReads
    sizes: Mapping[tuple[int, ...], tuple[int, ...]] = field(default_factory=dict)
