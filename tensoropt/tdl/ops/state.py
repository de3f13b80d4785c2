"""Reading, assigning and updating variables.

A variable operand, ref or resource handle, stands for the variable: its shape is the variable's,
and `element` of it is the value stored. An operator without an output tensor (the resource forms)
has one for its description: the variable's new value.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from tensoropt.tdl.expression import Expression, Opaque, Operand, elementwise
from tensoropt.tdl.operator_type import OperatorType
from tensoropt.tdl.registry import describe, record

__all__: list[str] = []

assign_to = elementwise("assign", operations=0)

# Per optimizer: how many leading inputs are updated in place (the variable, then its slots), and
# arithmetic operations per element of the kernel's formula.
_UPDATES = {
    "AdaMax": (3, 9),
    "Adadelta": (3, 13),
    "Adagrad": (2, 6),
    "AdagradDA": (3, 11),
    "AdagradV2": (2, 7),
    "Adam": (3, 12),
    "AdamWithAmsgrad": (4, 13),
    "AddSign": (2, 9),
    "CenteredRMSProp": (4, 15),
    "Ftrl": (3, 14),
    "FtrlV2": (3, 17),
    "GradientDescent": (1, 2),
    "KerasMomentum": (2, 4),
    "Momentum": (2, 4),
    "PowerSign": (2, 10),
    "ProximalAdagrad": (2, 11),
    "ProximalGradientDescent": (1, 8),
    "RMSProp": (3, 9),
}
_RESOURCE_ONLY = ("AdamWithAmsgrad", "KerasMomentum")


@describe("ReadVariableOp")
def read(variable: Operand) -> Any:
    return lambda *i: variable[i]


@describe("Assign", "AssignVariableOp", mutates=(0,))
def assign(variable: Operand, value: Operand) -> Any:
    if variable.shape != value.shape:
        return None  # without shape validation the variable takes another shape
    return lambda *i: assign_to(variable[i], value[i])


@describe("AssignAdd", "AssignAddVariableOp", mutates=(0,))
def assign_add(variable: Operand, value: Operand) -> Any:
    return lambda *i: variable[i] + value[i]


@describe("AssignSub", "AssignSubVariableOp", mutates=(0,))
def assign_sub(variable: Operand, value: Operand) -> Any:
    return lambda *i: variable[i] - value[i]


def _describe_update(name: str, variables: int, operations: int) -> None:
    formula = elementwise(name, operations)

    def update(*inputs: Operand) -> Any:
        """Variable, slots and gradient are read elementwise; hyperparameters are scalars."""
        return lambda *i: formula(*(x[i if x.rank else ()] for x in inputs))

    forms = [f"ResourceApply{name}"] + ([] if name in _RESOURCE_ONLY else [f"Apply{name}"])
    describe(*forms, mutates=tuple(range(variables)))(update)


for _name, (_variables, _operations) in _UPDATES.items():
    _describe_update(_name, _variables, _operations)


_SPARSE_UPDATES = {
    "Adadelta": 6,
    "Adagrad": 3,
    "AdagradDA": 3,
    "AdagradV2": 4,
    "CenteredRMSProp": 8,
    "Ftrl": 3,
    "FtrlV2": 3,
    "KerasMomentum": 3,
    "Momentum": 3,
    "ProximalAdagrad": 5,
    "ProximalGradientDescent": 4,
    "RMSProp": 7,
}
"""Per optimizer with a sparse gradient, the number of the input with the slices. The next input has
their row numbers."""

_WHOLE = slice(None)


def _describe_sparse_update(name: str, variables: int, operations: int, slices: int) -> None:
    formula = Opaque(name)

    def update(*inputs: Operand) -> Any:
        """Every device has all slices, and updates the rows that it stores."""
        rank = inputs[0].rank

        def element(row: Expression, *rest: Expression) -> Expression:
            rows = [x.at(row, *rest) for x in inputs[:variables]]
            operands = []
            for x in inputs[variables:]:
                columns = rest if x.rank == rank else ()
                operands.append(x.at(*(_WHOLE,) * (x.rank - len(columns)), *columns))
            return formula(*rows, *operands)

        return element

    def moved(
        split: frozenset[str], inputs: Sequence[tuple[int, ...]], outputs: Sequence[tuple[int, ...]]
    ) -> int:
        """Slices are read; rows of the variables are read and written."""
        del split, outputs
        return (1 + 2 * variables) * prod(n for n in inputs[slices] if n >= 0)

    forms = [f"ResourceSparseApply{name}"]
    forms += [] if name in _RESOURCE_ONLY else [f"SparseApply{name}"]
    describe(
        *forms,
        mutates=tuple(range(variables)),
        spelled_out=("row",),
        flops=lambda inputs, _: operations * inputs[slices].elements,
        moved=moved,
        open_shapes=True,
    )(update)
    record(
        *forms, facts=OperatorType(rows=(slices, slices + 1), any_size_rule=True, uneven_rule=True)
    )


for _name, _slices in _SPARSE_UPDATES.items():
    _describe_sparse_update(_name, *_UPDATES[_name], _slices)


record(
    "ReadVariableOp",
    facts=OperatorType(role="names", value="same", reads_variable=True, view="first"),
)
