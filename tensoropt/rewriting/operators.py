"""The operators of terms: their inputs, their indices, and exact kernels.

A signature names the indices of an operator, as Tofu's language does for operators of TensorFlow
(`tensoropt.tdl`), here for tensors of known ranks. An index can be split if devices can compute its
pieces separately: from a shard of each input that has the index and a copy of each other input, a
device computes a shard of the output, or a partial sum if the output lacks the index. `coverage`
compares signatures with the descriptions.

Kernels compute in whole numbers modulo a prime, so that sums are exact in any order (TASO, section
4). Functions that are not linear (``relu``, the exponential in ``softmax``) are fixed random
functions: an equation that holds for them holds for every function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tensoropt.arrays import Int64Array

__all__ = [
    "OPERATORS",
    "PARALLEL",
    "POINTWISE",
    "PRIME",
    "Dim",
    "Operator",
    "Signature",
    "inverse",
]

PRIME = 32749
"""The modulus of the kernels; products of two values, and sums of many, fit 64 bits."""

Dim = int | tuple[Any, ...]
"""A dimension of a signature or a type: the number of an index or a variable, or one of

``("cat", a, b)``, two dimensions one after the other, as a concatenation leaves them;
``("prod", a, b)``, two dimensions as one, the first one major, as a flattening leaves them;
``("times", a)``, ``("micro", a)``: the dimension a, times the number of devices or microbatches.
"""

Kernel = Callable[[Sequence[Int64Array], tuple[int, ...], tuple[int, ...]], Int64Array]


@dataclass(frozen=True)
class Signature:
    """The indices of an operator for certain ranks.

    Attributes:
        inputs: the dimensions of each input.
        output: the dimensions of the output.
        splittable: the indices that can be split.
    """

    inputs: tuple[tuple[Dim, ...], ...]
    output: tuple[Dim, ...]
    splittable: tuple[int, ...]


@dataclass(frozen=True)
class Operator:
    """An operator that computes.

    Attributes:
        name: its name in terms.
        ranks: ranks of its inputs and its output; ``r`` is any rank, the same everywhere.
        parameters: number of whole numbers that it needs; -1 for one per dimension.
        signature: a function of the parameters and ``r`` (0 if ranks are fixed); None for
            parameters that do not fit.
        kernel: a function of the inputs, the parameters and the shape of the output, modulo
            `PRIME`.
        rows: whether the kernel of a piece must know which piece it has (rows of a table).
    """

    name: str
    ranks: tuple[tuple[str, int], ...]
    parameters: int
    signature: Callable[[tuple[int, ...], int], Signature | None]
    kernel: Kernel
    rows: bool = False

    @property
    def arity(self) -> int:
        """The number of inputs."""
        return len(self.ranks) - 1


OPERATORS: dict[str, Operator] = {}
"""Every operator that computes, by name."""

PARALLEL = ("partition", "combine", "replicate", "reduce", "pipeline", "batch", "shards")
"""The operators that change a placement: Unity's six (section 3.3), and ``shards``, Unity's Concat
of a replica dimension (Figure 11b)."""

POINTWISE = ("relu", "tanh", "sigmoid", "exp", "erf")
"""Elementwise functions. A proof for ``relu`` that uses only properties of all elementwise
functions holds for the others."""

_RANDOM = np.random.default_rng(20220711)


def _function() -> Int64Array:
    return _RANDOM.integers(0, PRIME, PRIME, dtype=np.int64)


_TABLES = {name: _function() for name in (*POINTWISE, "softmax", "of_sum", "norm", "of_moment")}


def inverse(number: int) -> int:
    """The inverse of a number modulo `PRIME`."""
    return pow(number, -1, PRIME)


def _ranks(text: str) -> tuple[tuple[str, int], ...]:
    def one(word: str) -> tuple[str, int]:
        return ("", int(word)) if word.isdigit() else ("r", int(word[1:] or 0))

    return tuple(one(word) for word in text.replace("->", " ").split())


_SignatureOf = Callable[[tuple[int, ...], int], Signature | None]


def _register(
    name: str, ranks: str, parameters: int, rows: bool = False
) -> Callable[[_SignatureOf], Callable[[Kernel], Kernel]]:
    def decorate(signature: _SignatureOf) -> Callable[[Kernel], Kernel]:
        def kernel(function: Kernel) -> Kernel:
            OPERATORS[name] = Operator(name, _ranks(ranks), parameters, signature, function, rows)
            return function

        return kernel

    return decorate


def _fixed(text: str) -> _SignatureOf:
    """The signature of ``mk,kn->mn``: a letter is an index, a capital letter cannot be split."""
    left, right = text.split("->")
    letters = sorted(set(left + right) - {","})
    number = {letter: n for n, letter in enumerate(letters)}
    signature = Signature(
        tuple(tuple(number[c] for c in word) for word in left.split(",")),
        tuple(number[c] for c in right),
        tuple(number[c] for c in letters if c.islower()),
    )
    return lambda _, __: signature


def _like(*inputs: str, whole_last: bool = False) -> _SignatureOf:
    """The signature for any rank: each input has ``all``, the ``last`` or ``none`` of the output's
    dimensions."""
    least = 2 if "last" in inputs else int(whole_last or "none" in inputs)

    def signature(_: tuple[int, ...], rank: int) -> Signature | None:
        if rank < least:
            return None
        every = tuple(range(rank))
        dims = {"all": every, "last": every[-1:], "none": ()}
        splittable = every[:-1] if whole_last else every
        return Signature(tuple(dims[i] for i in inputs), every, splittable)

    return signature


def _matmul(x: Int64Array, y: Int64Array) -> Int64Array:
    return np.asarray(x @ y % PRIME)


def _elementwise(table: Int64Array) -> Kernel:
    return lambda a, _, __: table[a[0]]


for _name in POINTWISE:
    _register(_name, "r -> r", 0)(_like("all"))(_elementwise(_TABLES[_name]))

_register("matmul", "2 2 -> 2", 0)(_fixed("mk,kn->mn"))(lambda a, _, __: _matmul(a[0], a[1]))
_register("batch_matmul", "3 3 -> 3", 0)(_fixed("bmk,bkn->bmn"))(
    lambda a, _, __: _matmul(a[0], a[1])
)
_register("add", "r r -> r", 0)(_like("all", "all"))(lambda a, _, __: (a[0] + a[1]) % PRIME)
_register("mul", "r r -> r", 0)(_like("all", "all"))(lambda a, _, __: a[0] * a[1] % PRIME)
_register("scale", "r 0 -> r", 0)(_like("all", "none"))(lambda a, _, __: a[0] * a[1] % PRIME)
_register("bias_add", "r 1 -> r", 0)(_like("all", "last"))(lambda a, _, __: (a[0] + a[1]) % PRIME)


@_register("softmax", "r -> r", 0)(_like("all", whole_last=True))
def _softmax(a: Sequence[Int64Array], _: tuple[int, ...], __: tuple[int, ...]) -> Int64Array:
    exponential = _TABLES["softmax"][a[0]]
    total = _TABLES["of_sum"][exponential.sum(-1, keepdims=True) % PRIME]
    return np.asarray(exponential * total % PRIME)


def _normalised(x: Int64Array, gain: Int64Array, bias: Int64Array, over: Any) -> Int64Array:
    """A function of an element, a sum, and a sum of functions, as of a mean and a variance."""
    total = x.sum(over, keepdims=True)
    moment = _TABLES["of_moment"][x].sum(over, keepdims=True)
    return np.asarray((_TABLES["norm"][(3 * x + 5 * total + moment) % PRIME] * gain + bias) % PRIME)


_register("layer_norm", "r 1 1 -> r", 0)(_like("all", "last", "last", whole_last=True))(
    lambda a, _, __: _normalised(a[0], a[1], a[2], -1)
)
_register("batch_norm", "4 1 1 -> 4", 0)(_fixed("BHWc,c,c->BHWc"))(
    lambda a, _, __: _normalised(a[0], a[1], a[2], (0, 1, 2))
)


def _concat_signature(parameters: tuple[int, ...], rank: int) -> Signature | None:
    (dim,) = parameters
    if not 0 <= dim < rank:
        return None
    every = tuple(range(rank))
    other = (*every[:dim], rank, *every[dim + 1 :])
    output: tuple[Dim, ...] = (*every[:dim], ("cat", dim, rank), *every[dim + 1 :])
    return Signature((every, other), output, tuple(n for n in every if n != dim))


def _split_signature(parameters: tuple[int, ...], rank: int) -> Signature | None:
    dim, part = parameters
    joined = _concat_signature((dim,), rank)
    if joined is None or part not in (0, 1):
        return None
    return Signature((joined.output,), joined.inputs[part], joined.splittable)


_register("concat", "r r -> r", 1)(_concat_signature)(
    lambda a, p, _: np.concatenate(a, p[0]),
)


@_register("split", "r -> r", 2)(_split_signature)
def _split(a: Sequence[Int64Array], p: tuple[int, ...], shape: tuple[int, ...]) -> Int64Array:
    size = shape[p[0]]
    start = 0 if p[1] == 0 else a[0].shape[p[0]] - size
    return a[0][(slice(None),) * p[0] + (slice(start, start + size),)]


def _transpose_signature(parameters: tuple[int, ...], rank: int) -> Signature | None:
    if sorted(parameters) != list(range(rank)) or rank < 2:
        return None
    return Signature((tuple(range(rank)),), parameters, tuple(range(rank)))


_register("transpose", "r -> r", -1)(_transpose_signature)(
    lambda a, p, _: np.ascontiguousarray(a[0].transpose(p))
)


def _flatten_signature(parameters: tuple[int, ...], rank: int) -> Signature | None:
    (dim,) = parameters
    if not 0 <= dim < rank - 1:
        return None
    every = tuple(range(rank))
    output: tuple[Dim, ...] = (*every[:dim], ("prod", dim, dim + 1), *every[dim + 2 :])
    return Signature((every,), output, tuple(n for n in every if n != dim + 1))


def _unflatten_signature(parameters: tuple[int, ...], rank: int) -> Signature | None:
    flat = _flatten_signature(parameters, rank + 1)
    return flat and Signature((flat.output,), flat.inputs[0], flat.splittable)


_register("flatten", "r -> r-1", 1)(_flatten_signature)(lambda a, _, shape: a[0].reshape(shape))
_register("unflatten", "r -> r+1", 1)(_unflatten_signature)(lambda a, _, shape: a[0].reshape(shape))


def _sum_signature(parameters: tuple[int, ...], rank: int) -> Signature | None:
    (dim,) = parameters
    if not 0 <= dim < rank:
        return None
    every = tuple(range(rank))
    return Signature((every,), (*every[:dim], *every[dim + 1 :]), every)


_register("reduce_sum", "r -> r-1", 1)(_sum_signature)(lambda a, p, _: a[0].sum(p[0]) % PRIME)


@_register("embedding", "2 1 -> 2", 0, rows=True)(_fixed("vn,b->bn"))
def _embedding(a: Sequence[Int64Array], p: tuple[int, ...], __: tuple[int, ...]) -> Int64Array:
    """Rows of a table; ``p``, if not empty, is (number of the piece of rows, number of pieces)."""
    table, ids = a
    piece, pieces = p or (0, 1)
    rows = len(table)
    local_ids = ids % (rows * pieces) - piece * rows
    held = (local_ids >= 0) & (local_ids < rows)
    return np.asarray(table[np.where(held, local_ids, 0)] * held[:, None])


def _windows(x: Int64Array, height: int, width: int) -> Int64Array:
    """[b, h, w, height, width, c]: the inputs of each output, zeros beyond the borders ("SAME")."""
    top, left = (height - 1) // 2, (width - 1) // 2
    padding = ((0, 0), (top, height - 1 - top), (left, width - 1 - left), (0, 0))
    padded: Any = np.pad(x, padding)
    view: Any = np.lib.stride_tricks.sliding_window_view
    windows = view(padded, (height, width), (1, 2))
    return np.asarray(windows.transpose(0, 1, 2, 4, 5, 3))


@_register("conv", "4 4 -> 4", 0)(_fixed("bHWi,XYio->bHWo"))
def _conv(a: Sequence[Int64Array], _: tuple[int, ...], __: tuple[int, ...]) -> Int64Array:
    x, filters = a
    windows = _windows(x, *filters.shape[:2])
    flat = windows.reshape(*x.shape[:3], -1)
    return np.asarray(flat @ filters.reshape(-1, filters.shape[3]) % PRIME)


@_register("depthwise_conv", "4 3 -> 4", 0)(_fixed("bHWc,XYc->bHWc"))
def _depthwise(a: Sequence[Int64Array], _: tuple[int, ...], __: tuple[int, ...]) -> Int64Array:
    x, filters = a
    return np.asarray((_windows(x, *filters.shape[:2]) * filters).sum((3, 4)) % PRIME)


_register("avg_pool", "4 -> 4", 0)(_fixed("bHWc->bHWc"))(
    lambda a, _, __: _windows(a[0], 3, 3).sum((3, 4)) * inverse(9) % PRIME
)
_register("max_pool", "4 -> 4", 0)(_fixed("bHWc->bHWc"))(
    lambda a, _, __: _windows(a[0], 3, 3).max((3, 4))
)
