"""Which operators may read partial sums: where fewer or smaller tensors are then added up.

A linear operator can be run on each device's shares, and what it makes is added up in place of what
it reads (`tensoropt.tdl.linear`): of ``x @ w + h @ u``, each product a partial sum, one tensor in
place of two. Nothing is gained by an operator that reads one tensor and makes one as large: it is
offered partial sums only between others that gain.

Of a few numbers, such as the norms of gradients, what counts is how often something is added up:
they are partial sums along all axes or along none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from tensoropt.graph.coarsen import READS, leaders
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.tdl import Derivation
from tensoropt.tdl.registry import moves_rows

__all__ = ["is_little", "offered_sets"]

Sets = tuple[tuple[int, ...], ...]

# Up to so many bytes are added up in the time of one.
_LITTLE = 1024


def offered_sets(graph: Graph, derivations: Mapping[str, Derivation]) -> dict[str, Sets]:
    """Per operator the sets of inputs (`Derivation.linear`) that are offered as partial sums.

    Such a tensor is a partial sum where it is made, by an operator that can be split along what it
    adds up or that reads partial sums itself, and nothing else reads it: another reader would need
    it added up anyway.

    Args:
        graph: the operators.
        derivations: of all of them.
    """
    # What shares its configuration with others, as the gradient by a tensor does with its producer.
    tied = {name for pair in leaders(graph).items() if len(set(pair)) > 1 for name in pair}
    readers = Counter(tensor for operator in graph for tensor in operator.inputs)
    partial: set[TensorName] = set()
    possible: dict[str, Sets] = {}
    useful: list[str] = []
    for operator in graph:
        derivation = derivations[operator.name]
        sets: Sets = ()
        # The gradient of a table of which rows are looked up travels as rows.
        may = operator.name not in tied and operator.type not in READS
        if may and not moves_rows(operator.type):
            sets = tuple(
                each
                for each in derivation.linear
                if all(readers[operator.inputs[n]] == 1 for n in each)
                and all(operator.inputs[n] in partial for n in each)
            )
        if sets:
            possible[operator.name] = sets
            if any(_gains(operator, each) for each in sets):
                useful.append(operator.name)
        if sets or _adds_up(derivation):
            for number in range(len(operator.outputs)):
                partial.add(TensorName(operator.name, number))
    offered: dict[str, Sets] = {}
    while useful:
        name = useful.pop()
        if name in offered or name not in possible:
            continue
        offered[name] = possible[name]
        read = {n for each in possible[name] for n in each}
        useful += [graph[name].inputs[n].operator for n in sorted(read)]
    return offered


def _adds_up(derivation: Derivation) -> bool:
    return any(index.splittable and index.reducer == "sum" for index in derivation.indices)


def is_little(operator: Operator) -> bool:
    """Whether it reads and makes tensors of a few numbers alone."""
    return all(spec.bytes <= _LITTLE for spec in (*operator.input_specs, *operator.outputs))


def _gains(operator: Operator, inputs: tuple[int, ...]) -> bool:
    """Whether fewer or smaller tensors are added up behind an operator than before it."""
    before = [operator.input_specs[n] for n in inputs]
    made = sum(spec.bytes for spec in operator.outputs)
    return len(before) > 1 or sum(spec.bytes for spec in before) > made
