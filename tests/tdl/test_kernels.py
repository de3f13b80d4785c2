"""Every registered description against TensorFlow's own kernel."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tensoropt.tdl import described
from tensoropt.tdl.ops.random import DRAWN


def all_cases() -> dict[str, list[Any]]:
    """The cases of all modules; each type has them in one."""
    found: dict[str, list[Any]] = {}
    for name, module in sorted(sys.modules.items()):
        if name.startswith("tdl_cases.") and hasattr(module, "CASES"):
            assert not set(found) & set(module.CASES), name
            found |= module.CASES
    return found


CASES = all_cases()
BY_RULE = {*DRAWN, "PartitionedCall"}
"""Types without a kernel that makes pieces. Rules of the execution split the drawing operators,
which tests/execution/rules/test_random_operators.py compares with the kernel on the whole tensor.
Functions that are called have no case of their own: tests/frontend/test_parallelize.py compares
recurrent layers."""


def test_every_described_type_has_a_case_and_nothing_else_has() -> None:
    assert set(CASES) == set(described()) - BY_RULE


@pytest.mark.parametrize("op_type", sorted(set(described()) - BY_RULE))
def test_pieces_make_the_whole(op_type: str, check_kernel: Any, make_case: Any) -> None:
    """Forward and, where the operator is differentiable, backward; the first case of a type under
    a mixture of splits, too.

    Every type is run on pieces at least once, so that what is registered is what is verified.
    """
    trials = 0
    for number, (inputs, attributes, splits) in enumerate(CASES[op_type]):
        spread = [x for part in inputs for x in (part if isinstance(part, list) else [part])]
        trials += check_kernel(op_type, make_case(spread, attributes, splits), number == 0)
    assert trials > 0
