"""Arguments of a step: the fed ones, and the shapes that a trace has for them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import tensorflow as tf

from tensoropt.errors import FeedError
from tensoropt.execution.world.shares import Share

__all__ = ["Arguments", "Form", "Held", "fits", "widened"]

Form: TypeAlias = Any
"""A shape tuple for an array, the specification of a composite tensor, None for a constant."""


class Held:
    """An object that a trace captures, such as a variable: one trace serves one object.

    Args:
        value: the object. It is kept, so that no later object has its identity.
    """

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Held) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


class Arguments(NamedTuple):
    """The arguments of one call.

    Attributes:
        structure: the positional and the named arguments.
        flat: the leaves of the structure; a composite tensor is one leaf, a variable is `Held`.
        key: equal for calls that differ only in the shapes of fed values.
        exact: the form of each leaf.
        forms: for each leaf the form that a trace should have, which may leave extents unknown.
    """

    structure: Any
    flat: list[Any]
    key: Any
    exact: tuple[Form, ...]
    forms: tuple[Form, ...]

    @classmethod
    def of(cls, args: Sequence[Any], kwargs: Mapping[str, Any], specs: Any = None) -> Arguments:
        """Describe a call.

        Args:
            args: the positional arguments.
            kwargs: the named arguments.
            specs: a structure like ``(args, kwargs)`` with specifications for the trace, which
                replace the shapes of the arguments; None for no specifications.
        """
        structure = (tuple(args), dict(kwargs))
        flat = [Held(leaf) if _is_variable(leaf) else leaf for leaf in tf.nest.flatten(structure)]
        kinds, forms = list[Any](), list[Form]()
        for value in flat:
            if isinstance(value, (np.ndarray, Share, np.generic, tf.Tensor)):  # quick ones first
                shape = value.shape
                form: Form = shape if isinstance(shape, tuple) else tuple(shape.as_list())
                kinds.append((tf.as_dtype(value.dtype), len(form)))
            elif _is_composite(value):
                form = _spec_of(value)
                kinds.append(
                    (type(value), *((part.dtype, part.shape.rank) for part in _parts(value)))
                )
            else:
                form = None
                kinds.append((type(value), value))
            forms.append(form)
        key, exact = (_structure(structure), tuple(kinds)), tuple(forms)
        wanted = [] if specs is None else tf.nest.flatten(specs)
        if len(wanted) == len(flat):
            forms = [_declared(*pair) for pair in zip(forms, wanted, strict=True)]
        return cls(structure, flat, key, exact, tuple(forms))

    @classmethod
    def by_signature(
        cls, function: Callable[..., Any], signature: Any, args: Sequence[Any], kwargs: Any
    ) -> Arguments:
        """Describe a call of a function that was decorated with an ``input_signature``.

        Raises:
            FeedError: if the arguments do not fit the signature.
        """
        bound = inspect.signature(function).bind(*args, **kwargs)
        given, more = bound.args[: len(signature)], bound.args[len(signature) :]
        try:
            tf.nest.assert_same_structure(tuple(signature), given)
            tensors = tf.nest.map_structure(_converted, tuple(signature), given)
        except (ValueError, TypeError) as error:
            raise FeedError(
                "the arguments of a step fit the input_signature of its tf.function. Got "
                f"{given!r} for {signature!r}: {error}"
            ) from error
        call = cls.of((*tensors, *more), bound.kwargs)
        wanted = tf.nest.flatten(tuple(signature))
        forms = [_declared(*pair) for pair in zip(call.forms, wanted, strict=False)]
        return call._replace(forms=(*forms, *call.forms[len(forms) :]))

    @property
    def fed(self) -> list[Any]:
        """The arrays among the arguments, and the parts of composite tensors."""
        arrays = []
        for value, form in zip(self.flat, self.forms, strict=True):
            if form is not None:
                arrays += [value] if isinstance(form, tuple) else _parts(value)
        return arrays

    @property
    def has_examples(self) -> list[bool]:
        """For each of `fed`, whether its first dimension may count examples."""
        flags = list[bool]()
        for value, form in zip(self.flat, self.forms, strict=True):
            if isinstance(form, tuple):
                flags.append(bool(form))
            elif form is not None:
                flags += [False] * len(_parts(value))
        return flags

    def specs(self, forms: Sequence[Form]) -> Any:
        """The structure with specifications of some forms in place of the fed values."""
        leaves = [
            tf.TensorSpec(form, tf.as_dtype(value.dtype))
            if isinstance(form, tuple)
            else value
            if form is None
            else form
            for value, form in zip(self.flat, forms, strict=True)
        ]
        return tf.nest.pack_sequence_as(self.structure, leaves)


def fits(forms: Sequence[Form], pattern: Sequence[Form]) -> bool:
    """Whether a trace with the forms ``pattern`` serves values with some forms."""
    for form, wider in zip(forms, pattern, strict=True):
        if isinstance(wider, tuple):
            if form == wider:
                continue
            assert isinstance(form, tuple)
            if any(n is not None and n != m for n, m in zip(wider, form, strict=True)):
                return False
        elif wider is not None and not form.is_subtype_of(wider):
            return False
    return True


def widened(pattern: Sequence[Form], forms: Sequence[Form]) -> tuple[Form, ...] | None:
    """The narrowest pattern for two sequences of forms, with differing extents unknown; None if
    there is none."""
    common = list[Form]()
    for one, other in zip(pattern, forms, strict=True):
        if isinstance(one, tuple) and isinstance(other, tuple):
            common.append(tuple(n if n == m else None for n, m in zip(one, other, strict=True)))
        else:
            both = None if one is None else one.most_specific_common_supertype([other])
            if both is None and one is not None:
                return None
            common.append(both)
    return tuple(common)


def _is_variable(value: Any) -> bool:
    """Whether a value is a variable of TensorFlow, or a variable of Keras that holds one."""
    if isinstance(value, (np.ndarray, Share)):  # quicker than a question about TensorFlow's types
        return False
    return isinstance(value, tf.Variable) or isinstance(getattr(value, "_value", None), tf.Variable)


def _is_composite(value: Any) -> bool:
    """Whether a value consists of tensors of numbers or strings."""
    if not isinstance(value, tf.__internal__.CompositeTensor):
        return False
    return all(
        isinstance(part, tf.Tensor) and part.dtype not in (tf.variant, tf.resource)
        for part in _parts(value)
    )


def _parts(value: Any) -> list[Any]:
    return list(tf.nest.flatten(value, expand_composites=True))


def _spec_of(value: Any) -> tf.TypeSpec:
    spec = tf.type_spec_from_value(value)
    if isinstance(spec, tf.IndexedSlicesSpec):  # the number of slices differs from call to call
        indices = value.indices
        spec = tf.IndexedSlicesSpec(
            value.shape,
            value.dtype,
            indices.dtype,
            None if value.dense_shape is None else value.dense_shape.dtype,
            [None],
        )
    return spec


def _declared(form: Form, spec: Any) -> Form:
    """The form that a specification declares, or the form itself if it declares another kind."""
    if isinstance(form, tuple) and isinstance(spec, tf.TensorSpec):
        if spec.shape.rank is None:
            return (None, *form[1:]) if form else form
        declared = tuple(spec.shape.as_list())
        return declared if fits([form], [declared]) else form
    if isinstance(form, tf.TypeSpec) and isinstance(spec, type(form)):
        return spec if form.is_subtype_of(spec) else form
    return form


def _converted(spec: Any, value: Any) -> Any:
    """A value as a tensor of a specification.

    Raises:
        ValueError, TypeError: if the value does not fit.
    """
    if isinstance(spec, tf.TensorSpec):
        value = tf.convert_to_tensor(value, spec.dtype)
    if not spec.is_compatible_with(value):
        raise ValueError(f"{value!r} does not fit {spec}.")
    return value


def _structure(value: Any) -> Any:
    """A key of a structure without its leaves, faster than TensorFlow's own functions."""
    if type(value) in (list, tuple):
        return type(value), *map(_structure, value)
    if type(value) is dict:
        return dict, *((name, _structure(item)) for name, item in sorted(value.items()))
    return str(tf.nest.map_structure(lambda _: None, value)) if tf.nest.is_nested(value) else None
