"""Cases: updates of variables, dense and by rows."""

from __future__ import annotations

import numpy as np
from tdl_cases.values import Array, Row, positive
from tensorflow.python.framework import op_def_registry

from tensoropt.tdl import described, lookup
from tensoropt.tdl.ops import state

HYPERPARAMETERS = {"lr_power": -0.5, "logbase": 1.1, "l1": 0.01, "l2": 0.02, "l2_shrinkage": 0.03}


def update_rows(op_type: str) -> list[Row]:
    names = [argument.name for argument in op_def_registry.get(op_type).input_arg]
    rows: list[Row] = []
    for shape, splits in (((6, 12), "i0 i1"), ((), "")):
        inputs: list[Array] = []
        for i, name in enumerate(names):
            if i in lookup(op_type).mutates or name in ("grad", "delta", "value", "resource"):
                inputs.append(positive(*shape))
            elif name == "global_step":
                inputs.append(np.array(3, np.int64))
            else:
                inputs.append(np.array(HYPERPARAMETERS.get(name, 0.4), np.float32))
        rows.append((inputs, {}, splits))
    return rows


def sparse_update_rows(op_type: str) -> list[Row]:
    """Rows 4, 0 and 2 of a variable of six; columns can be split."""
    names = [argument.name for argument in op_def_registry.get(op_type).input_arg]
    inputs: list[Array] = []
    for i, name in enumerate(names):
        if i in lookup(op_type).mutates:
            inputs.append(positive(5, 12))
        elif name == "grad":
            inputs.append(positive(3, 12))
        elif name == "indices":
            inputs.append(np.array([4, 0, 2], np.int32))
        elif name == "global_step":
            inputs.append(np.array(3, np.int64))
        else:
            inputs.append(np.array(HYPERPARAMETERS.get(name, 0.4), np.float32))
    return [(inputs, {}, "rest0")]


CASES: dict[str, list[Row]] = {
    op_type: (sparse_update_rows if "SparseApply" in op_type else update_rows)(op_type)
    for op_type in described()
    if lookup(op_type).function.__module__ == state.__name__ and op_type != "ReadVariableOp"
}
