"""Check a description against TensorFlow's kernel: split, run the pieces, reassemble, compare."""

from __future__ import annotations

import importlib
import inspect
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import tensorflow as tf
from tensorflow.python.eager import context  # eager code though a script's graph mode is on
from tensorflow.python.framework import op_def_registry, ops

from tensoropt.frontend.definitions.kernel_pieces import assemble, share
from tensoropt.parallel.configuration import (
    Configuration,
    configurations,
    gradient_is_local,
    input_slot,
    output_slot,
    rescaling,
)
from tensoropt.parallel.local_form import local_form
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation, derive, lookup
from tensoropt.tensor_spec import TensorSpec

Array = npt.NDArray[Any]

# The cases are modules of a package of their own, since tests are no package.
_PACKAGE = "tdl_cases"
_FOLDER = Path(__file__).parent / "cases"


def _load_cases() -> list[ModuleType]:
    package = ModuleType(_PACKAGE)
    package.__path__ = [str(_FOLDER)]
    sys.modules[_PACKAGE] = package
    names = sorted(path.stem for path in _FOLDER.glob("*.py"))
    return [importlib.import_module(f"{_PACKAGE}.{name}") for name in names]


CASE_MODULES = _load_cases()

# What tf.raw_ops calls an attribute, where TensorFlow's operator definition says otherwise.
RENAMED = {"squeeze_dims": "axis"}

READS_VARIABLE = ("ReadVariableOp", "ResourceGather", "ResourceGatherNd")

# A maximum's gradient must know which device has it: execution spells these out, no others.
REDUCES_OTHERWISE = ("All", "Any", "Max", "Min", "Prod")

# Its gradient raises an error, which is what it is for.
REFUSES_GRADIENT = ("PreventGradient",)

# TensorFlow's gradient of a broadcast input has the output's shape here, which no program can use.
ILL_SHAPED_GRADIENT = ("SoftmaxCrossEntropyWithLogits",)


@dataclass
class Case:
    """One use of an operator: its inputs (variables first where it updates some), attributes.

    ``splits`` names the indices that must be splittable; None leaves that open.
    """

    inputs: Sequence[Array]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    splits: str | None = None


def run_kernel(
    op_type: str, inputs: Sequence[Array], attributes: Mapping[str, Any]
) -> tuple[list[Array], Callable[[Sequence[Array]], list[Array | None]] | None]:
    """Outputs of the kernel and, for an operator on values, its gradient function."""
    definition = op_def_registry.get(op_type)
    assert definition is not None
    if any(argument.is_ref for argument in definition.input_arg) and lookup(op_type).mutates:
        return run_on_references(op_type, inputs, attributes), None
    mutated = lookup(op_type).mutates
    resource = bool(mutated) or op_type in READS_VARIABLE
    tensors: list[Any] = []
    variables = []
    for i, array in enumerate(inputs):
        if i in mutated or (resource and i == 0):
            variables.append(tf.Variable(array))
            tensors.append(variables[-1].handle)
        else:
            tensors.append(tf.constant(array))
    kernel = getattr(tf.raw_ops, op_type)
    named = dict(zip(inspect.signature(kernel).parameters, grouped(op_type, tensors), strict=False))
    named |= {RENAMED.get(name, name): value for name, value in attributes.items()}
    if resource:
        result = kernel(**named)
        return [variables[0].numpy() if mutated else result.numpy()], None
    with tf.GradientTape() as tape:
        watched = [t for t in tensors if is_continuous(t)]
        tape.watch(watched)
        results = kernel(**named)
    results = list(results) if isinstance(results, (list, tuple)) else [results]

    def gradients(upstream: Sequence[Array]) -> list[Array | None]:
        targets = [r for r in results if is_continuous(r)]
        given = [tf.constant(u) for u in upstream if u.dtype.kind in "fc"]
        found = iter(tape.gradient(targets, watched, given))
        each = [next(found) if is_continuous(t) else None for t in tensors]
        return [None if g is None else np.asarray(tf.convert_to_tensor(g)) for g in each]

    return [r.numpy() for r in results], gradients


def is_continuous(tensor: tf.Tensor) -> bool:
    return bool(tensor.dtype.is_floating or tensor.dtype.is_complex)


def is_differentiable(op_type: str) -> bool:
    """Whether TensorFlow has a gradient of the operator."""
    try:
        return ops.gradient_registry.lookup(op_type) is not None
    except LookupError:
        return False


def grouped(op_type: str, tensors: Sequence[Any]) -> list[Any]:
    """The inputs as the operator's arguments: lists of tensors, of one length, put together."""
    arguments = op_def_registry.get(op_type).input_arg
    lists = sum(bool(a.number_attr or a.type_list_attr) for a in arguments)
    length = (len(tensors) - len(arguments) + lists) // lists if lists else 0
    left = list(tensors)
    found: list[Any] = []
    for argument in arguments:
        count = length if argument.number_attr or argument.type_list_attr else 1
        taken, left = left[:count], left[count:]
        found.append(taken if argument.number_attr or argument.type_list_attr else taken[0])
    return found


def run_on_references(
    op_type: str, inputs: Sequence[Array], attributes: Mapping[str, Any]
) -> list[Array]:
    """The kernel on reference variables, in a graph of its own."""
    names = [argument.name for argument in op_def_registry.get(op_type).input_arg]
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tensors: list[Any] = [tf.constant(array) for array in inputs]
        for i in lookup(op_type).mutates:
            variable = tf.raw_ops.VariableV2(shape=inputs[i].shape, dtype=inputs[i].dtype)
            session.run(tf.raw_ops.Assign(ref=variable, value=inputs[i]))
            tensors[i] = variable
        kernel = getattr(tf.raw_ops, op_type)
        named = dict(zip(names, tensors, strict=True))
        return [np.asarray(session.run(kernel(**named, **attributes)))]


def specs(op_type: str, case: Case) -> list[TensorSpec]:
    constants = lookup(op_type).constants(len(case.inputs))
    return [
        TensorSpec(a.shape, a.dtype.name, a if i in constants else None)
        for i, a in enumerate(case.inputs)
    ]


def trials(derivation: Derivation, seed: str, is_mixed: bool) -> list[tuple[Mesh, Configuration]]:
    """Every index in 3, of which one piece has neighbours on both sides; and where ``is_mixed``, a
    mixture on 6 devices."""
    mesh = Mesh((3,))
    found = [(mesh, c) for c in configurations(derivation, mesh) if any(c.splits)]
    if found and not is_mixed:
        return found
    mesh = Mesh((2, 3))
    mixed = [c for c in configurations(derivation, mesh) if sum(map(len, c.splits)) == 2]
    chosen = random.Random(seed).sample(mixed, min(1, len(mixed)))
    return found + [(mesh, c) for c in chosen]


def local_inputs(
    op_type: str, case: Case, derivation: Derivation, c: Configuration, mesh: Mesh, rank: int
) -> tuple[list[Array], dict[str, Any]]:
    """What the kernel of one device is run on: pieces of the inputs, and its attributes."""
    pieces = []
    for i, array in enumerate(case.inputs):
        layout = input_slot(derivation, c, i).forward
        pieces.append(array[layout.region(array.shape, mesh, rank)])
    form = local_form(derivation, c, mesh, specs(op_type, case), case.attributes)
    for key, value in form.items():
        if isinstance(key, int):
            pieces[key] = np.array(value, case.inputs[key].dtype)
    attributes = {key: value for key, value in form.items() if isinstance(key, str)}
    return pieces, {**case.attributes, **attributes}


def close(got: Array, expected: Array, what: str) -> None:
    np.testing.assert_allclose(got, expected, rtol=2e-5, atol=2e-5, err_msg=what)


def by_kernel(derivation: Derivation) -> Derivation:
    """Leave out splits that need a rule of the execution, which no kernel does."""
    left = {n for n, index in enumerate(derivation.indices) if index.spelled_out}

    def whole(dims: tuple[int | None, ...]) -> tuple[int | None, ...]:
        return tuple(None if n in left else n for n in dims)

    return replace(
        derivation,
        indices=tuple(
            replace(index, splittable=index.splittable and not index.spelled_out)
            for index in derivation.indices
        ),
        inputs=tuple(map(whole, derivation.inputs)),
        outputs=tuple(map(whole, derivation.outputs)),
    )


def check(op_type: str, case: Case, is_mixed: bool = True) -> int:
    """Assert that every trial's pieces, reassembled, are the whole; how many trials there were.

    ``is_mixed``: with a mixture of splits, too.
    """
    expected, gradients = run_kernel(op_type, case.inputs, case.attributes)
    outputs = [TensorSpec(a.shape, a.dtype.name) for a in expected]
    derivation = by_kernel(derive(op_type, specs(op_type, case), outputs, case.attributes))
    if case.splits is not None:
        names = [derivation.indices[n].name for n in derivation.splittable]
        assert " ".join(names) == case.splits
    reducers = {derivation.indices[n].reducer for n in derivation.splittable}
    assert op_type in REDUCES_OTHERWISE or reducers <= {None, "sum"}
    generator = np.random.default_rng(7)
    upstream = [np.asarray(generator.normal(size=a.shape)).astype(a.dtype) for a in expected]
    differentiable = is_differentiable(op_type) and op_type not in REFUSES_GRADIENT
    if differentiable and gradients and any(a.dtype.kind in "fc" for a in expected):
        expected_gradients = gradients(upstream)
    else:
        expected_gradients = [None] * len(case.inputs)
    tried = trials(derivation, op_type, is_mixed)
    for mesh, c in tried:
        what = f"{op_type} {c.describe(derivation, mesh)}"
        slots = [output_slot(derivation, c, o) for o in range(len(expected))]
        local_outputs, local_gradients = [], []
        scale = float(rescaling(derivation, c, mesh))
        for rank in mesh:
            pieces, attributes = local_inputs(op_type, case, derivation, c, mesh, rank)
            results, backward = run_kernel(op_type, pieces, attributes)
            local_outputs.append([r if scale == 1 else r * r.dtype.type(scale) for r in results])
            if backward and any(g is not None for g in expected_gradients):
                local_upstream = [
                    share(u, s.gradient, mesh, rank) * u.dtype.type(scale)
                    for u, s in zip(upstream, slots, strict=True)
                ]
                local_gradients.append(backward(local_upstream))
        for o, whole in enumerate(expected):
            got = assemble(slots[o].forward, [r[o] for r in local_outputs], whole.shape, mesh)
            assert got.dtype == whole.dtype
            close(got, whole, f"{what}, output {o}")
        if not gradient_is_local(derivation, c):
            continue
        for i, gradient in enumerate(expected_gradients):
            if gradient is not None and gradient.shape != case.inputs[i].shape:
                assert op_type in ILL_SHAPED_GRADIENT
            elif gradient is not None:
                layout = input_slot(derivation, c, i).gradient
                shares = [g[i] for g in local_gradients]
                assert all(g is not None for g in shares)
                got = assemble(layout, shares, gradient.shape, mesh)  # type: ignore[arg-type]
                close(got, gradient, f"{what}, gradient of input {i}")
    return len(tried)


@pytest.fixture
def check_kernel() -> Iterator[Callable[..., int]]:
    """Kernels run one by one; importing tensoropt, as other tests do, has turned that off."""
    with context.eager_mode():
        yield check


@pytest.fixture
def make_case() -> type[Case]:
    return Case
