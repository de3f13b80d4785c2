"""Descriptions that a script registers, each checked against the operator's kernel at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from tensoropt.errors import DescriptionError
from tensoropt.frontend.definitions.kernel_pieces import Kernel, is_close, run_in_pieces
from tensoropt.parallel.configuration import configurations, gradient_is_local
from tensoropt.parallel.mesh import Mesh
from tensoropt.tdl import Derivation, Piece, derive, registry
from tensoropt.tdl.any_size import AnySize
from tensoropt.tensor_spec import TensorSpec
from tensoropt.tensorflow_private import op_def_registry, ops

__all__ = ["describe"]

Array = npt.NDArray[Any]
Describe = TypeVar("Describe", bound=Callable[..., Any])

_PIECES = (2, 3)
"""Numbers of pieces of each index; in three, one has neighbours on both sides."""

_described: set[str] = set()
"""Operator types that the script has described: it may describe them again."""


def describe(
    op_type: str,
    *,
    inputs: Sequence[npt.ArrayLike],
    attributes: Mapping[str, object] | None = None,
    constant_operands: tuple[int, ...] = (),
    local: Callable[[Piece], Mapping[int | str, object]] | None = None,
    flops: Callable[..., int] | None = None,
    any_size: AnySize | None = None,
) -> Callable[[Describe], Describe]:
    """Return a decorator that registers a description of an operator type.

    The decorator runs the kernel on the inputs, then in two and in three pieces along each index
    that the description can split, and compares outputs and gradients. Nothing is registered if
    they differ. See docs/adding-an-operator.md.

    Args:
        op_type: an operator type of TensorFlow, or of a library that the script has loaded.
        inputs: values to try the kernel on, a value for each input. An extent that is split is a
            multiple of 2 or 3.
        attributes: values of TensorFlow's attributes that have no default.
        constant_operands: numbers of the inputs whose values the description reads.
        local: the arguments of the kernel on a piece that differ from the whole's.
        flops: counts arithmetic operations, if the description's own count misleads.
        any_size: tells whether a split is valid for extents that are known only in a run.

    Raises:
        DescriptionError: if the type is unknown, draws or holds a state, or is described by
            TensorOpt; by the decorator, if the description does not agree with the kernel.
    """
    _check_type(op_type)
    kernel = Kernel(op_type, attributes or {})
    arrays = [np.asarray(each) for each in inputs]

    def register(function: Describe) -> Describe:
        if op_type in _described:
            registry.forget(op_type)
            _described.remove(op_type)
        registry.describe(
            op_type,
            constant_operands=constant_operands,
            local=local,
            flops=flops,
            any_size=any_size,
        )(function)
        try:
            _check(kernel, arrays)
        except BaseException:
            registry.forget(op_type)
            raise
        _described.add(op_type)
        return function

    return register


def _check_type(op_type: str) -> None:
    definition = op_def_registry.get(op_type)
    if definition is None:
        raise DescriptionError(
            f"an operator type of TensorFlow or of a loaded library is described. Got {op_type!r}. "
            "Correct its name, or call tf.load_op_library first."
        )
    if definition.is_stateful:
        raise DescriptionError(
            f"an operator whose outputs follow from its inputs is described. Got {op_type}, which "
            "draws or holds a state. Leave it: every device computes it whole."
        )


def _check(kernel: Kernel, arrays: Sequence[Array]) -> None:
    """Compare the kernel on pieces with the kernel on the whole.

    Raises:
        DescriptionError: if they differ, or if no index or not every index can be tried.
    """
    op_type = kernel.op_type
    outputs = kernel.run(arrays).outputs
    generator = np.random.default_rng(0)
    upstream = None
    if _has_gradient(op_type):
        upstream = [generator.normal(size=each.shape).astype(each.dtype) for each in outputs]
    whole = kernel.run(arrays, upstream)
    specs = [TensorSpec(each.shape, each.dtype.name, each) for each in arrays]
    derivation = derive(
        op_type,
        specs,
        [TensorSpec(each.shape, each.dtype.name) for each in outputs],
        whole.attributes,
    )
    tried: set[int] = set()
    for pieces in _PIECES:
        mesh = Mesh((pieces,))
        for configuration in configurations(derivation, mesh):
            if not any(configuration.splits):
                continue
            (number,) = (n for n, axes in enumerate(configuration.splits) if axes)
            tried.add(number)
            trial = f"{op_type} with index {derivation.indices[number].name} in {pieces} pieces"
            if upstream is not None and not gradient_is_local(derivation, configuration):
                raise DescriptionError(
                    "an operator with a gradient is split along indices of outputs and of sums: "
                    "which element is the largest, no device knows alone. Got "
                    f"{trial}. Make the slice along the index opaque."
                )
            try:
                parts = run_in_pieces(
                    kernel, derivation, configuration, mesh, specs, whole, upstream
                )
            except Exception as error:
                raise DescriptionError(
                    f"the kernel of a described operator runs on pieces. Got {trial}: {error} "
                    "Correct the description, or make the slice along the index opaque."
                ) from error
            _compare(trial, "output", parts.outputs, whole.outputs)
            _compare(trial, "gradient of input", parts.gradients, whole.gradients)
    _check_tried(op_type, derivation, tried)


def _compare(
    trial: str, kind: str, parts: Sequence[Array | None], whole: Sequence[Array | None]
) -> None:
    for number, (found, right) in enumerate(zip(parts, whole, strict=True)):
        if right is None or (found is not None and is_close(found, right)):
            continue
        raise DescriptionError(
            f"the pieces of a described operator, put together, are its whole. Got {trial}: {kind} "
            f"{number} differs. Correct the description, or make the slice along the index opaque."
        )


def _check_tried(op_type: str, derivation: Derivation, tried: set[int]) -> None:
    splittable = set(derivation.splittable)
    if not splittable:
        reasons = "; ".join(f"{each.name}: {each.reason}" for each in derivation.indices)
        raise DescriptionError(
            f"a description splits an index on the inputs that it is tried on. Got none of "
            f"{op_type} ({reasons or 'it returned None'}). Give larger inputs, or no description: "
            "every device then computes the operator whole."
        )
    if splittable - tried:
        left = ", ".join(
            f"{derivation.indices[n].name} of extent {derivation.indices[n].extent}"
            for n in sorted(splittable - tried)
        )
        raise DescriptionError(
            f"every index of a description is tried in 2 or 3 pieces. Got {left} in {op_type}. "
            "Give inputs whose extents are multiples of 6."
        )


def _has_gradient(op_type: str) -> bool:
    try:
        return ops.gradient_registry.lookup(op_type) is not None
    except LookupError:
        return False
