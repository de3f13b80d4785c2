"""Reading, assigning and updating variables.

A variable operand, ref or resource handle, stands for the variable: its shape is the variable's,
and `element` of it is the value stored. An operator without an output tensor (the resource forms)
has one for its description: the variable's new value.
"""

from __future__ import annotations

from typing import Any

from tensoropt.tdl.expression import Expression, Opaque, Operand, elementwise
from tensoropt.tdl.registry import describe

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
        """Variable, slots and gradient meet element by element; hyperparameters are scalars."""
        return lambda *i: formula(*(x[i if x.rank else ()] for x in inputs))

    forms = [f"ResourceApply{name}"] + ([] if name in _RESOURCE_ONLY else [f"Apply{name}"])
    describe(*forms, mutates=tuple(range(variables)))(update)


for _name, (_variables, _operations) in _UPDATES.items():
    _describe_update(_name, _variables, _operations)


# Optimizers that update the rows of a sparse gradient.
_SPARSE = (
    *("Adadelta", "Adagrad", "AdagradDA", "AdagradV2", "CenteredRMSProp", "Ftrl", "FtrlV2"),
    *("KerasMomentum", "Momentum", "ProximalAdagrad", "ProximalGradientDescent", "RMSProp"),
)


def _describe_sparse_update(name: str, variables: int) -> None:
    formula = Opaque(name)

    def update(*inputs: Operand) -> Any:
        """Rows are found by number, so the first dimension is whole; every other one passes."""
        rank = inputs[0].rank

        def element(row: Expression, *rest: Expression) -> Expression:
            read = []
            for x in inputs:
                own = rest if x.rank == rank else ()
                read.append(x.at(*(slice(None),) * (x.rank - len(own)), *own))
            return formula(*read)[row]

        return element

    forms = [f"ResourceSparseApply{name}"]
    forms += [] if name in _RESOURCE_ONLY else [f"SparseApply{name}"]
    describe(*forms, mutates=tuple(range(variables)))(update)


for _name in _SPARSE:
    _describe_sparse_update(_name, _UPDATES[_name][0])
