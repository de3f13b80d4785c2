"""Application of substitutions at places of a logical graph.

The replacement reads the script's own tensors, so that variables, their names, slots and
checkpoints stay as the script wrote them: concatenated weights are an operator on the values of
variables. Only the forward pass is rewritten; ranks derive its gradients as for any other graph.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Annotated

from annotated_types import Len

from tensoropt.converters import Pairs, Text
from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.differentiation import sparse_tensors
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.per_graph import per_graph
from tensoropt.rewriting.substitutions import Substitution, proven
from tensoropt.rewriting.terms import Term
from tensoropt.tensor_spec import TensorSpec
from tensoropt.transformations.rewritten.cuts import cuts_of_inputs
from tensoropt.transformations.rewritten.joined import join_nested, merge_equal
from tensoropt.transformations.rewritten.matching import Match, Matcher
from tensoropt.transformations.rewritten.needed import needed, operators_needed
from tensoropt.transformations.rewritten.parts import with_tensors
from tensoropt.transformations.rewritten.patterns import outputs_of
from tensoropt.transformations.rewritten.sizes import shape_of
from tensoropt.transformations.rewritten.term_builder import DoesNotFit, TermBuilder
from tensoropt.transformations.rewritten.views import POINTWISE_TYPES

__all__ = [
    "Replacement",
    "Rewrite",
    "apply",
    "named_in_tags",
    "reads_of",
    "replacement_of",
    "rewrite_of",
    "rewritten",
    "substitutions_by_name",
    "with_replacements",
]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A substitution at one place.

    Attributes:
        substitution: its name.
        outputs: the tensors that are computed in another way.
        inputs: the tensors of the inputs of its terms, by name.
    """

    substitution: Text
    outputs: Annotated[tuple[str, ...], Len(1)]
    inputs: Annotated[tuple[tuple[str, str], ...], Pairs()]

    def __str__(self) -> str:
        return f"{self.substitution} at {', '.join(self.outputs)}"


@cache
def substitutions_by_name() -> Mapping[str, Substitution]:
    """The proven substitutions of logical graphs by name, in both directions if both are proven."""
    return {substitution.name: substitution for substitution in proven(("algebraic",))}


def rewrite_of(substitution: Substitution, match: Match) -> Rewrite:
    """The rewrite of a substitution at a match of its source."""
    return Rewrite(
        substitution.name,
        tuple(map(str, match.outputs)),
        tuple((name, str(tensor)) for name, tensor in match.inputs),
    )


def rewritten(
    graph: Graph,
    rewrites: Sequence[Rewrite],
    roots: Collection[str],
    substitutions: Mapping[str, Substitution] | None = None,
) -> Graph:
    """A graph after substitutions, one after the other.

    A substitution whose source is not in the graph is skipped: a run of a part of a step has only
    some of the operators.

    Args:
        graph: a script's graph, as imported.
        rewrites: the substitutions in their order.
        roots: the operators that are run or fetched.
        substitutions: by name; by default `substitutions_by_name`.
    """
    if not rewrites:
        return graph
    substitutions = substitutions_by_name() if substitutions is None else substitutions
    for rewrite in rewrites:
        after = apply(graph, rewrite, substitutions[rewrite.substitution], roots)
        graph = graph if after is None else after
    return graph


@dataclass(frozen=True, slots=True, eq=False)
class Replacement:
    """The new operators of a substitution at one place.

    Attributes:
        graph: the graph, with the parts that the new operators read.
        operators: the new operators, in topological order.
        tensors: for each replaced tensor the one that takes its place.
    """

    graph: Graph
    operators: Mapping[str, Operator]
    tensors: Mapping[TensorName, TensorName]


def apply(
    graph: Graph, rewrite: Rewrite, substitution: Substitution, roots: Collection[str]
) -> Graph | None:
    """A graph after a substitution; None if its source is not there, or cannot be replaced."""
    found = replacement_of(Matcher(graph), graph, rewrite, substitution)
    if found is None:
        return None
    replaced = with_replacements(found.graph, [found], roots)
    return None if replaced is None else join_nested(merge_equal(replaced, roots), roots)


def replacement_of(
    matcher: Matcher, graph: Graph, rewrite: Rewrite, substitution: Substitution
) -> Replacement | None:
    """The new operators of a substitution; None if its source is not there or cannot be replaced.

    Args:
        matcher: finds terms in the graph.
        graph: the graph.
        rewrite: the substitution's place.
        substitution: the substitution.
    """
    outputs = [TensorName.parse(name) for name in rewrite.outputs]
    inputs = {name: TensorName.parse(tensor) for name, tensor in rewrite.inputs}
    if len(outputs) > 1 and _reads_itself(graph, substitution, outputs, inputs):
        return None
    match = matcher.at(substitution, outputs, inputs)
    if match is None or not set(outputs).isdisjoint(inputs.values()):
        return None  # the replacement reads the replaced tensor, which would still be computed
    if any(tensor.operator not in graph.operators for tensor in outputs):
        return None  # an output is a set of outputs of a split, which no operator reads
    tagged = named_in_tags(graph)
    if any(tensor.operator in tagged for tensor in outputs):
        return None
    if not _keeps_sparse(graph, substitution, inputs):
        return None
    shapes = {term: matcher.shape(tensor) for term, tensor in match.terms}
    graph = with_tensors(graph, inputs.values())
    builder = TermBuilder(
        graph,
        inputs,
        _prefix(graph, substitution, outputs),
        dict(match.kinds),
        lambda term: shape_of(substitution, term, match.sizes),
        cuts_of_inputs(shapes),
    )
    try:
        new = [builder.tensor(term) for term in outputs_of(substitution.target)]
    except DoesNotFit:
        return None
    if any(
        builder.spec(replacement).shape != graph.spec(old).shape
        or builder.spec(replacement).dtype != graph.spec(old).dtype
        for old, replacement in zip(outputs, new, strict=True)
    ):
        return None
    return Replacement(graph, builder.operators, dict(zip(outputs, new, strict=True)))


def _reads_itself(
    graph: Graph,
    substitution: Substitution,
    outputs: Sequence[TensorName],
    inputs: Mapping[str, TensorName],
) -> bool:
    """Whether the replacement of several outputs reads a tensor that depends on one of them.

    The graph would have a cycle. Most pairs of products in a recurrence are such outputs, because
    each step depends on the step before.
    """
    if not all(t.operator in graph and len(graph[t.operator].outputs) == 1 for t in outputs):
        return False  # another output of the operator may be what is read
    read = [inputs[name].operator for name in substitution.target.inputs]
    for tensor in outputs:
        own, needed_by = operators_needed(graph, graph[tensor.operator].type)
        if any(needed_by.get(name, 0) & own[tensor.operator] for name in read):
            return True
    return False


def _keeps_sparse(
    graph: Graph, substitution: Substitution, inputs: Mapping[str, TensorName]
) -> bool:
    """Whether lookups still read tables with sparse gradients directly.

    An optimizer that gets a sparse gradient changes only its rows.
    """
    sparse = frozenset[TensorName]().union(*sparse_tensors(graph).values())
    tables = {Term.input(name) for name, tensor in inputs.items() if tensor in sparse}
    return all(
        argument not in tables or (term.operator == "embedding" and number == 0)
        for term in substitution.target.subterms()
        for number, argument in enumerate(term.arguments)
    )


def _prefix(graph: Graph, substitution: Substitution, outputs: Sequence[TensorName]) -> str:
    """The prefix of the names of new operators: the same on every rank, and unused so far."""
    base = f"{outputs[0].operator}/{re.sub('[^A-Za-z0-9_.]+', '_', substitution.name)}"
    prefix, number = base, 1
    while any(name.startswith(f"{prefix}/") for name in graph.operators):
        number += 1
        prefix = f"{base}_{number}"
    return prefix


@per_graph
def named_in_tags(graph: Graph) -> frozenset[str]:
    """Names of the operators that recorded gradients refer to; these operators stay."""
    names: set[str] = set()
    for operator in graph:
        tag = operator.gradient
        if tag is not None:
            given = (g for g in tag.grad_ys if g is not None)
            names.update(t.operator for t in (*tag.ys, tag.x, *tag.stop_gradients, *given))
            names.update(tag.after)
    return frozenset(names)


def with_replacements(
    graph: Graph, replacements: Sequence[Replacement], roots: Collection[str]
) -> Graph | None:
    """A graph in which replacements are read in place of other tensors; None if it has a cycle.

    A root whose output is replaced becomes an Identity of the new tensor.

    Args:
        graph: the graph.
        replacements: none reads or replaces what another one replaces. With several, the result is
            None, too, if a new operator cannot come before its first reader in the graph's order.
        roots: the operators that are run or fetched.
    """
    operators: dict[str, Operator] = {}
    tensors = {old: new for each in replacements for old, new in each.tensors.items()}
    waits = {old.operator: new_tensor.operator for old, new_tensor in tensors.items()}
    waiting = [dict(each.operators) for each in replacements]
    places = {t.operator: n for n, each in enumerate(replacements) for t in each.tensors}
    for name, operator in graph.operators.items():
        read = operator.predecessors
        if name in waits and name in roots and len(operator.outputs) == 1:
            changed, read = _alias(operator, tensors[TensorName(name, 0)]), (name,)
        elif not waits.keys().isdisjoint(read):
            changed = _with_replaced_reads(operator, tensors, waits)
        else:
            operators[name] = operator
            continue
        # A new operator comes before its first reader, once its inputs are there.
        for place in sorted({places[each] for each in read if each in places}):
            for new_name, new_operator in list(waiting[place].items()):
                if all(map(operators.__contains__, new_operator.predecessors)):
                    operators[new_name] = waiting[place].pop(new_name)
            if waiting[place] and len(replacements) > 1:
                return None
        operators[name] = changed
    for of_place in waiting:
        operators.update(of_place)
    return needed(operators, roots)


def _alias(operator: Operator, tensor: TensorName) -> Operator:
    spec = operator.outputs[0]
    return Operator(
        operator.name,
        "Identity",
        (tensor,),
        (TensorSpec(spec.shape, spec.dtype),),
        (spec,),
        {"T": spec.dtype},
        synthetic=True,
    )


def _with_replaced_reads(
    operator: Operator, replacements: Mapping[TensorName, TensorName], waits: Mapping[str, str]
) -> Operator:
    inputs = tuple(replacements.get(tensor, tensor) for tensor in operator.inputs)
    controls = tuple(waits.get(name, name) for name in operator.control_inputs)
    if inputs == operator.inputs and controls == operator.control_inputs:
        return operator
    return replace(operator, inputs=inputs, control_inputs=controls)


_READS_FACTORS = frozenset({"MatMul", "BatchMatMulV2", "Mul", "Conv2D", "DepthwiseConv2dNative"})
"""Types whose gradient reads both inputs."""


def reads_of(graph: Graph, reads: BackwardReads) -> BackwardReads:
    """The tensors that the backward pass of a rewritten graph reads, also of new operators."""
    inputs, outputs = (
        {name: numbers for name, numbers in known.items() if name in graph}
        for known in (reads.inputs, reads.outputs)
    )
    for operator in graph:
        if not operator.synthetic or operator.name in inputs or operator.name in outputs:
            continue
        if operator.type in _READS_FACTORS:
            inputs[operator.name] = (0, 1)
        elif operator.type == "GatherV2":
            inputs[operator.name] = (1,)
        elif operator.type == "MaxPool":
            inputs[operator.name] = outputs[operator.name] = (0,)
        elif operator.type in POINTWISE_TYPES | {"Softmax"}:
            outputs[operator.name] = (0,)
    return BackwardReads(inputs, outputs)
