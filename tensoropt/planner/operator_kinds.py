"""Kinds of operators that notes and checks list."""

from __future__ import annotations

from tensoropt.graph.operator import Operator
from tensoropt.plan.operator_plan import NAMES_ONLY
from tensoropt.tdl import operator_type

__all__ = ["calls_functions", "computes", "is_undescribed", "makes_text"]


def computes(operator: Operator) -> bool:
    """Whether an operator computes, instead of only holding, reading or naming a tensor."""
    return not (operator.is_variable or operator.is_placeholder or operator.type in NAMES_ONLY)


def makes_text(operator: Operator) -> bool:
    """Whether all outputs of an operator are strings: a summary, a file's name, a label."""
    dtypes = {spec.dtype for spec in operator.outputs}
    return dtypes == {"string"}


def is_undescribed(operator: Operator) -> bool:
    """Whether an operator computes numbers and has no description."""
    return bool(
        computes(operator)
        and operator.outputs
        and not makes_text(operator)
        and not operator.is_constant
        and operator_type(operator.type).description is None
    )


def calls_functions(operator: Operator) -> bool:
    """Whether an operator is a loop, a conditional or a call of functions.

    Its time depends on the functions, and on values known only when it runs. So neither a
    description nor a measurement tells it. The loop of a recurrent layer is an exception: it has a
    description by its rows.
    """
    calls = operator_type(operator.type).role == "calls functions"
    return calls and not operator.attributes.get("_tensoropt_rows")
