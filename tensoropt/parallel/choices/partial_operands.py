"""Which operators may read partial sums, so that fewer or smaller tensors are summed over devices.

A linear operator can run on each device's shares of its inputs. Then its outputs are summed in
place of its inputs (`tdl.operator_type.linear_inputs`). For example, in ``x @ w + h @ u`` both
products can be partial sums, and one tensor is summed in place of two. An operator that reads one
tensor and makes one of the same size gains nothing. It may read partial sums only if one of its
readers gains.

Summing a few numbers, such as the norms of gradients, takes as long over all axes of the mesh as
over one. Therefore these tensors are partial over all axes or over none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.tied_operators import READS, leaders
from tensoropt.tdl import Derivation
from tensoropt.tdl.registry import moves_rows

__all__ = ["is_little", "partial_operand_sets"]

Sets = tuple[tuple[int, ...], ...]
"""Sets of inputs of an operator, by their numbers."""

_SMALL_BYTES = 1024  # summing up to this many bytes takes as long as summing one


def partial_operand_sets(graph: Graph, derivations: Mapping[str, Derivation]) -> dict[str, Sets]:
    """Return the sets of inputs (`Derivation.linear`) of each operator that may be partial sums.

    An input may be a partial sum if no other operator reads it, since another reader would need the
    sum. Its producer has to make partial sums: it has a reduction index, or may read partial sums
    itself.
    """
    # Tied operators have the configuration of their leader, so they cannot choose.
    tied = {name for pair in leaders(graph).items() if len(set(pair)) > 1 for name in pair}
    readers = Counter(tensor for operator in graph for tensor in operator.inputs)
    partial: set[TensorName] = set()
    possible: dict[str, Sets] = {}
    useful: list[str] = []
    for operator in graph:
        derivation = derivations[operator.name]
        sets: Sets = ()
        can_choose = operator.name not in tied and operator.type not in READS
        if can_choose and not moves_rows(operator.type):  # rows travel as sparse gradients
            sets = tuple(
                numbers
                for numbers in derivation.linear
                if all(readers[operator.inputs[n]] == 1 for n in numbers)
                and all(operator.inputs[n] in partial for n in numbers)
            )
        if sets:
            possible[operator.name] = sets
            if any(_gains(operator, numbers) for numbers in sets):
                useful.append(operator.name)
        if sets or _has_sum(derivation):
            for number in range(len(operator.outputs)):
                partial.add(TensorName(operator.name, number))
    chosen: dict[str, Sets] = {}
    while useful:
        name = useful.pop()
        if name in chosen or name not in possible:
            continue
        chosen[name] = possible[name]
        read = {n for numbers in possible[name] for n in numbers}
        useful += [graph[name].inputs[n].operator for n in sorted(read)]
    return chosen


def _has_sum(derivation: Derivation) -> bool:
    return any(index.splittable and index.reducer == "sum" for index in derivation.indices)


def is_little(operator: Operator) -> bool:
    """Whether an operator reads and makes only tensors of a few numbers."""
    return all(spec.bytes <= _SMALL_BYTES for spec in (*operator.input_specs, *operator.outputs))


def _gains(operator: Operator, inputs: tuple[int, ...]) -> bool:
    """Whether the outputs to be summed are fewer or smaller than the inputs."""
    before = [operator.input_specs[n] for n in inputs]
    made = sum(spec.bytes for spec in operator.outputs)
    return len(before) > 1 or sum(spec.bytes for spec in before) > made
