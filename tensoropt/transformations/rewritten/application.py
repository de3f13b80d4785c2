"""Substitutions applied at places of a logical graph.

What takes a place reads the script's own tensors, so variables, their names, slots and checkpoints
stay as the script wrote them: concatenated weights are an operator on what variables' reads give.
Only the forward part is rewritten; gradients are made of it on the ranks, as of any other.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from tensoropt.graph.backward_reads import BackwardReads
from tensoropt.graph.differentiation import sparse_tensors
from tensoropt.graph.operator import Graph, Operator, TensorName
from tensoropt.graph.per_graph import per_graph
from tensoropt.graph.tensor import TensorSpec
from tensoropt.rewriting.substitutions import Substitution, verified
from tensoropt.rewriting.terms import Term
from tensoropt.transformations.rewritten.cuts import cuts_of_inputs
from tensoropt.transformations.rewritten.growing import DoesNotFit, Grown
from tensoropt.transformations.rewritten.joined import join_nested, merge_equal
from tensoropt.transformations.rewritten.matching import Match, Matcher, outputs_of
from tensoropt.transformations.rewritten.needed import needed
from tensoropt.transformations.rewritten.parts import made
from tensoropt.transformations.rewritten.sizes import shape_of
from tensoropt.transformations.rewritten.views import POINTWISE_TYPES

__all__ = [
    "Rewrite",
    "apply",
    "named_in_tags",
    "reads_of",
    "rewrite_of",
    "rewritten",
    "substitutions_by_name",
]


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A substitution at one place.

    Attributes:
        substitution: its name.
        outputs: the tensors that are made otherwise.
        inputs: what the inputs of its terms stand for, by name.
    """

    substitution: str
    outputs: tuple[str, ...]
    inputs: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        return f"{self.substitution} at {', '.join(self.outputs)}"

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        inputs = dict(self.inputs)
        return {"substitution": self.substitution, "outputs": self.outputs, "inputs": inputs}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Rewrite:
        """The inverse of `to_json`."""
        inputs = tuple(values["inputs"].items())
        return cls(values["substitution"], tuple(values["outputs"]), inputs)


@cache
def substitutions_by_name() -> Mapping[str, Substitution]:
    """Those that are proven, in both directions where both hold."""
    return {each.name: each for each in verified()}


def rewrite_of(substitution: Substitution, match: Match) -> Rewrite:
    """A substitution where its source matches."""
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

    One whose place is not there is left out: a run of part of a step has some of its operators
    only.

    Args:
        graph: a script's, as imported.
        rewrites: in their order.
        roots: the operators that are run or fetched.
        substitutions: by name; `substitutions_by_name` if left out.
    """
    if not rewrites:
        return graph
    substitutions = substitutions_by_name() if substitutions is None else substitutions
    for rewrite in rewrites:
        after = apply(graph, rewrite, substitutions[rewrite.substitution], roots)
        graph = graph if after is None else after
    return graph


def apply(
    graph: Graph, rewrite: Rewrite, substitution: Substitution, roots: Collection[str]
) -> Graph | None:
    """A graph after a substitution; None where its source is not there, or cannot be replaced."""
    outputs = [TensorName.parse(name) for name in rewrite.outputs]
    inputs = {name: TensorName.parse(tensor) for name, tensor in rewrite.inputs}
    matcher = Matcher(graph)
    match = matcher.at(substitution, outputs, inputs)
    if match is None or not set(outputs).isdisjoint(inputs.values()):
        return None  # what is replaced would be made besides
    if any(tensor.operator not in graph.operators for tensor in outputs):
        return None  # some outputs of a split, taken for one tensor, which nothing reads
    tagged = named_in_tags(graph)
    if any(tensor.operator in tagged for tensor in outputs):
        return None
    if not _keeps_sparse(graph, substitution, inputs):
        return None
    shapes = {term: matcher.shape(tensor) for term, tensor in match.terms}
    graph = made(graph, inputs.values())
    prefix = _prefix(graph, substitution, outputs)
    grown = Grown(
        graph,
        inputs,
        prefix,
        dict(match.kinds),
        lambda term: shape_of(substitution, term, match.sizes),
        cuts_of_inputs(shapes),
    )
    try:
        new = [grown.tensor(term) for term in outputs_of(substitution.target)]
    except DoesNotFit:
        return None
    if any(
        grown.spec(own).shape != graph.spec(old).shape
        or grown.spec(own).dtype != graph.spec(old).dtype
        for old, own in zip(outputs, new, strict=True)
    ):
        return None
    found = _replaced(graph, grown.operators, dict(zip(outputs, new, strict=True)), roots)
    return None if found is None else join_nested(merge_equal(found, roots), roots)


def _keeps_sparse(
    graph: Graph, substitution: Substitution, inputs: Mapping[str, TensorName]
) -> bool:
    """Whether tables whose gradient is sparse are still what rows are looked up in: an optimizer
    that is given rows changes these alone."""
    sparse = frozenset[TensorName]().union(*sparse_tensors(graph).values())
    tables = {Term.input(name) for name, tensor in inputs.items() if tensor in sparse}
    return all(
        argument not in tables or (term.operator == "embedding" and number == 0)
        for term in substitution.target.subterms()
        for number, argument in enumerate(term.arguments)
    )


def _prefix(graph: Graph, substitution: Substitution, outputs: Sequence[TensorName]) -> str:
    """Of the names of new operators: the same on every rank, and used for no others."""
    base = f"{outputs[0].operator}/{re.sub('[^A-Za-z0-9_.]+', '_', substitution.name)}"
    prefix, number = base, 1
    while any(name.startswith(f"{prefix}/") for name in graph.operators):
        number += 1
        prefix = f"{base}_{number}"
    return prefix


@per_graph
def named_in_tags(graph: Graph) -> frozenset[str]:
    """The operators that recorded gradients name, which stay."""
    found: set[str] = set()
    for operator in graph:
        tag = operator.gradient
        if tag is not None:
            given = (g for g in tag.grad_ys if g is not None)
            found.update(t.operator for t in (*tag.ys, tag.x, *tag.stop_gradients, *given))
            found.update(tag.after)
    return frozenset(found)


def _replaced(
    graph: Graph,
    new: Mapping[str, Operator],
    by: Mapping[TensorName, TensorName],
    roots: Collection[str],
) -> Graph | None:
    """A graph in which tensors are others; None if that makes a circle.

    A root whose output is another tensor now is a name of that.
    """
    operators: dict[str, Operator] = {}
    waits = {old.operator: made.operator for old, made in by.items()}
    waiting = dict(new)
    for name, operator in graph.operators.items():
        if name in waits and name in roots and len(operator.outputs) == 1:
            changed = _alias(operator, by[TensorName(name, 0)])
        elif any(before in waits for before in operator.predecessors):
            changed = _reading(operator, by, waits)
        else:
            operators[name] = operator
            continue
        # What is new comes before its first reader, where what it reads is there.
        for new_name, own in list(waiting.items()):
            if all(before in operators for before in own.predecessors):
                operators[new_name] = waiting.pop(new_name)
        operators[name] = changed
    operators.update(waiting)
    return needed(operators, roots)


def _alias(operator: Operator, made: TensorName) -> Operator:
    spec = operator.outputs[0]
    return Operator(
        operator.name,
        "Identity",
        (made,),
        (TensorSpec(spec.shape, spec.dtype),),
        (spec,),
        {"T": spec.dtype},
        synthetic=True,
    )


def _reading(
    operator: Operator, by: Mapping[TensorName, TensorName], waits: Mapping[str, str]
) -> Operator:
    inputs = tuple(by.get(tensor, tensor) for tensor in operator.inputs)
    controls = tuple(waits.get(name, name) for name in operator.control_inputs)
    if inputs == operator.inputs and controls == operator.control_inputs:
        return operator
    return replace(operator, inputs=inputs, control_inputs=controls)


_READS_FACTORS = frozenset({"MatMul", "BatchMatMulV2", "Mul", "Conv2D", "DepthwiseConv2dNative"})
"""Types whose gradient reads both inputs."""


def reads_of(graph: Graph, reads: BackwardReads) -> BackwardReads:
    """What the backward pass reads of a rewritten graph, of operators that are new, too."""
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
