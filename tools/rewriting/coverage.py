"""Coverage: substitutions that only parallelize are configurations and reshardings of our space.

Each side of such a substitution is one way to compute the same operators. The mesh has two axes,
one of devices and one for microbatches. Every tensor gets a layout, every operator a
`Configuration` whose slots are the layouts of its inputs and its output, and every operator that
changes a placement the steps of `plan_reshard`. So a search over configurations and reshardings
finds strategies at least as good as these substitutions do. Our microbatches are parts of the
examples (`tensoropt.transformations.microbatches`); an operator may be computed in microbatches
along an index that can be split.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tensoropt.errors import LayoutError
from tensoropt.parallel.configuration import (
    Configuration,
    configurations,
    input_slot,
    output_slot,
)
from tensoropt.parallel.layout import Layout
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.resharding.planner import plan_reshard
from tensoropt.parallel.resharding.step import ReshardStep
from tensoropt.rewriting.algebra.dimensions import size_of, variables_of
from tensoropt.rewriting.algebra.typing import COPIES, WHOLE, Placement, TensorType
from tensoropt.rewriting.operators import PARALLEL
from tensoropt.rewriting.substitutions import Substitution
from tensoropt.rewriting.terms import INPUT, TUPLE, Term
from tensoropt.tdl import derive
from tensoropt.tensor_spec import TensorSpec
from tools.rewriting.tensorflow_form import Step, steps_of

__all__ = ["Covered", "Uncovered", "cover"]

_MESH = Mesh((2, 2))
_SPACE, _TIME = range(2)


@dataclass(frozen=True)
class Side:
    """One side of a substitution in our space.

    Attributes:
        layouts: the layout of every tensor.
        configurations: the type and configuration of every TensorFlow operator, in order.
        reshardings: the steps of every operator that changes a placement.
    """

    layouts: Mapping[Term, Layout]
    configurations: tuple[tuple[str, Configuration], ...]
    reshardings: tuple[tuple[ReshardStep, ...], ...]


@dataclass(frozen=True)
class Covered:
    """A substitution and its two sides in our space."""

    substitution: Substitution
    source: Side
    target: Side


@dataclass(frozen=True)
class Uncovered:
    """A substitution, and the first term of it that our space lacks."""

    substitution: Substitution
    term: Term
    reason: str


class _NotOurs(Exception):
    def __init__(self, term: Term, reason: str) -> None:
        super().__init__(f"{term}: {reason}")
        self.term, self.reason = term, reason


def cover(substitution: Substitution) -> Covered | Uncovered:
    """The form of a substitution of kind "parallel" in our space."""
    sides = []
    try:
        for term in (substitution.source, substitution.target):
            sides.append(_side(term, substitution))
    except _NotOurs as error:
        return Uncovered(substitution, error.term, error.reason)
    source, target = sides
    for one, other in zip(
        _outputs(substitution.source), _outputs(substitution.target), strict=True
    ):
        if source.layouts[one] != target.layouts[other]:
            return Uncovered(substitution, other, "the two sides end in different layouts")
    return Covered(substitution, source, target)


def _outputs(term: Term) -> tuple[Term, ...]:
    return term.arguments if term.operator == TUPLE else (term,)


def _side(term: Term, substitution: Substitution) -> Side:
    layouts: dict[Term, Layout] = {}
    configured: list[tuple[str, Configuration]] = []
    steps: list[tuple[ReshardStep, ...]] = []
    types = substitution.typing.types
    for each in term.subterms():
        if each.operator == TUPLE:
            continue
        shape = _whole_shape(types[each])
        if each.operator == INPUT:
            layouts[each] = _layout(types[each].placement, len(shape))
        elif each.operator in PARALLEL:
            layouts[each] = _moved(each, layouts[each.arguments[0]], types[each].placement)
            steps.append(_resharding(each, shape, layouts[each.arguments[0]], layouts[each]))
        else:
            shapes = [_whole_shape(types[a]) for a in each.arguments]
            taken = [layouts[a] for a in each.arguments]
            made, chosen = _configured(each, shapes, shape, taken, types[each].placement)
            layouts[each] = made
            configured += chosen
    return Side(layouts, tuple(configured), tuple(steps))


def _whole_shape(found: TensorType) -> tuple[int, ...]:
    """The shape of the whole tensor with 8 for each variable, which divides by all pieces and
    cuts."""
    sizes = {v: 8 for dim in found.dims for v in variables_of(dim)}
    shape = [size_of(dim, sizes, *_MESH.axes) for dim in found.dims]
    for place, pieces in zip(found.placement, _MESH.axes, strict=True):
        if place >= 0:
            shape[place] *= pieces
    return tuple(shape)


def _layout(placement: Placement, rank: int) -> Layout:
    space, time = placement
    dims = tuple(
        tuple(axis for axis, place in ((_SPACE, space), (_TIME, time)) if place == dim)
        for dim in range(rank)
    )
    return Layout(dims, (_SPACE,) if space == COPIES else ())


def _moved(term: Term, before: Layout, placement: Placement) -> Layout:
    """The layout after an operator that changes it. A tensor that no axis splits is replicated."""
    if term.operator == "reduce" and not before.partial:
        raise _NotOurs(term, "it adds up replicas")
    if term.operator == "replicate":
        return before
    after = _layout(
        (WHOLE if term.operator == "reduce" else placement[0], placement[1]), len(before.dims)
    )
    if placement[0] == COPIES and not before.partial:
        return Layout(after.dims)
    return after


def _price(_: str, __: tuple[int, ...], step_bytes: int) -> int:
    return 1 + step_bytes


def _resharding(
    term: Term, shape: tuple[int, ...], before: Layout, after: Layout
) -> tuple[ReshardStep, ...]:
    try:
        return plan_reshard(_MESH, shape, 4, before, after, _price)
    except LayoutError as error:
        raise _NotOurs(term, str(error)) from None


def _configured(
    term: Term,
    shapes: Sequence[tuple[int, ...]],
    output: tuple[int, ...],
    taken: Sequence[Layout],
    placement: Placement,
) -> tuple[Layout, list[tuple[str, Configuration]]]:
    """The layout of the output, and configurations whose inputs have the given layouts."""
    wanted = _layout(placement, len(output))
    for layouts, chosen in _chains(steps_of(term, shapes, output), shapes, list(taken)):
        made = layouts[-1]
        if made == wanted or (placement[0] == COPIES and made == Layout(wanted.dims)):
            return made, chosen
    raise _NotOurs(term, "no configuration of its operator takes inputs and leaves outputs so")


def _chains(
    steps: Sequence[Step], shapes: Sequence[tuple[int, ...]], layouts: list[Layout]
) -> Iterator[tuple[list[Layout], list[tuple[str, Configuration]]]]:
    """The configurations of consecutive operators, each with the layouts of the tensors before
    it."""
    if not steps:
        yield layouts, []
        return
    step = steps[0]
    inputs, taken = [], []
    for each in step.inputs:
        if isinstance(each, int):
            inputs.append(TensorSpec(shapes[each], "float32"))
            taken.append(layouts[each])
        else:
            inputs.append(each)
            taken.append(Layout.replicated(len(each.shape)))
    outputs = [TensorSpec(shape, "float32") for shape in step.shapes]
    derivation = derive(step.op_type, inputs, outputs, step.attributes)
    if any(layout.partial for layout in taken):
        derivation = derivation.on_shares()
    for each_configuration in configurations(derivation, _MESH):
        slots = (input_slot(derivation, each_configuration, i) for i in range(len(inputs)))
        if all(slot.forward == layout for slot, layout in zip(slots, taken, strict=True)):
            made = output_slot(derivation, each_configuration, step.output).forward
            chosen = (step.op_type, each_configuration)
            rest = _chains(steps[1:], [*shapes, step.shapes[step.output]], [*layouts, made])
            for found, others in rest:
                yield found, [chosen, *others]
