"""The alphabets of the generator: operators and inputs of one family at a time.

All alphabets together have every operator of `tensoropt.rewriting.operators`. The functions of
elements are represented by ``relu``.
"""

from __future__ import annotations

from tensoropt.rewriting.algebra.typing import COPIES, WHOLE
from tools.rewriting.candidates import Alphabet, InputKind

__all__ = ["ALPHABETS"]

_N = 4  # divides by two devices, each with two microbatches


def _operators(text: str) -> tuple[tuple[str, tuple[int, ...]], ...]:
    found = []
    for word in text.split():
        name, _, numbers = word.rstrip("]").partition("[")
        found.append((name, tuple(map(int, numbers.split(","))) if numbers else ()))
    return tuple(found)


def _whole(names: str, rank: int) -> InputKind:
    return InputKind(tuple(names), (_N,) * rank)


_CUTS = "concat[0] concat[1] split[0,0] split[0,1] split[1,0] split[1,1]"
_SCALAR = _whole("c", 0)

_ALGEBRAIC = (
    Alphabet(
        "products",
        (_whole("xyzw", 2), _SCALAR),
        _operators(f"matmul add relu scale transpose[1,0] {_CUTS}"),
        3,
    ),
    Alphabet(
        "elements",
        (_whole("xyz", 2), InputKind(("c", "d"), ())),
        _operators(f"add mul relu scale reduce_sum[0] reduce_sum[1] {_CUTS}"),
        3,
    ),
    Alphabet(
        "rows",
        (_whole("xy", 2), _whole("bcd", 1)),
        _operators(f"matmul add relu bias_add softmax layer_norm transpose[1,0] {_CUTS}"),
        3,
    ),
    Alphabet(
        "batches",
        (_whole("xyzw", 3), _SCALAR),
        _operators(
            "batch_matmul add relu scale softmax transpose[0,2,1] transpose[1,0,2] "
            "transpose[2,1,0] concat[0] concat[1] concat[2] split[0,0] split[0,1] split[1,0] "
            "split[1,1] split[2,0] split[2,1]"
        ),
        3,
        2,
    ),
    Alphabet(
        "images",
        (
            InputKind(("x", "y"), (_N, 2, 2, _N)),
            InputKind(("u", "v"), (3, 3, _N, _N)),
            InputKind(("b", "c"), (_N,)),
        ),
        _operators(
            "conv add relu bias_add avg_pool max_pool batch_norm concat[0] concat[2] concat[3] "
            "split[0,0] split[0,1] split[3,0] split[3,1]"
        ),
        3,
    ),
    Alphabet(
        "channels",
        (InputKind(("x", "y"), (_N, 2, 2, _N)), InputKind(("u", "v"), (3, 3, _N)), _SCALAR),
        _operators("depthwise_conv add scale concat[0] concat[2] concat[3] split[3,0] split[3,1]"),
        3,
    ),
    Alphabet(
        "tables",
        (_whole("xyw", 2), InputKind(("i", "j"), (_N + 1,)), _whole("b", 1)),
        _operators(f"embedding matmul add mul relu bias_add {_CUTS}"),
        3,
    ),
    Alphabet(
        "shapes",
        (InputKind(("x", "y"), (_N, 2, _N)), InputKind(("w",), (_N, _N)), _whole("b", 1)),
        _operators(
            "flatten[0] unflatten[0] matmul add relu softmax bias_add layer_norm concat[0] "
            "concat[1] concat[2] transpose[1,0,2] reduce_sum[0] reduce_sum[1] reduce_sum[2]"
        ),
        3,
    ),
)


def _lain(
    rank: int, dims: tuple[int, ...], prefix: str, shape: tuple[int, ...] = ()
) -> list[InputKind]:
    """Two inputs for each layout of a tensor on an axis, and one in microbatches."""
    full = shape or (_N,) * rank
    kinds = [InputKind((f"{prefix}p", f"{prefix}q"), full, (COPIES, WHOLE))]
    for dim in dims:
        own = (*full[:dim], full[dim] // 2, *full[dim + 1 :])
        kinds.append(InputKind((f"{prefix}s{dim}", f"{prefix}t{dim}"), own, (dim, WHOLE)))
        kinds.append(InputKind((f"{prefix}m{dim}", f"{prefix}n{dim}"), own, (WHOLE, dim)))
    return kinds


def _layouts(*dims: int) -> str:
    numbered = ("partition", "combine", "pipeline", "batch")
    return "replicate reduce " + " ".join(f"{op}[{d}]" for d in dims for op in numbered)


def _parallel(
    name: str, inputs: list[InputKind], dims: tuple[int, ...], operators: str, size: int = 4
) -> Alphabet:
    return Alphabet(name, tuple(inputs), _operators(f"{_layouts(*dims)} {operators}"), size, 1)


_PARALLEL = (
    _parallel(
        "products in parallel",
        [_whole("xy", 2), _SCALAR, *_lain(2, (0, 1), "a"), *_lain(0, (), "c")],
        (0, 1),
        "matmul add mul relu scale transpose[1,0] shards",
    ),
    _parallel(
        "rows in parallel",
        [_whole("x", 2), _whole("bd", 1), *_lain(2, (0, 1), "a"), *_lain(1, (0,), "b")],
        (0, 1),
        f"bias_add softmax layer_norm reduce_sum[0] reduce_sum[1] {_CUTS}",
    ),
    _parallel(
        "batches in parallel",
        [_whole("xy", 3), *_lain(3, (0, 1, 2), "a")],
        (0, 1, 2),
        "batch_matmul softmax transpose[0,2,1] transpose[1,0,2] flatten[0] relu",
    ),
    _parallel(
        "images in parallel",
        [
            InputKind(("x",), (_N, 2, 2, _N)),
            InputKind(("u",), (3, 3, _N, _N)),
            *_lain(4, (0, 3), "a", (_N, 2, 2, _N)),
            *_lain(4, (2, 3), "f", (3, 3, _N, _N)),
        ],
        (0, 2, 3),
        "conv avg_pool max_pool",
        3,
    ),
    _parallel(
        "statistics in parallel",
        [
            InputKind(("x",), (_N, 2, 2, _N)),
            InputKind(("b", "c"), (_N,)),
            *_lain(4, (3,), "a", (_N, 2, 2, _N)),
            *_lain(1, (0,), "b"),
        ],
        (0, 3),
        "batch_norm",
    ),
    _parallel(
        "channels in parallel",
        [
            InputKind(("x",), (_N, 2, 2, _N)),
            InputKind(("u",), (3, 3, _N)),
            *_lain(4, (0, 3), "a", (_N, 2, 2, _N)),
            *_lain(3, (2,), "f", (3, 3, _N)),
        ],
        (0, 2, 3),
        "depthwise_conv",
    ),
    _parallel(
        "tables in parallel",
        [
            _whole("x", 2),
            InputKind(("i",), (2 * _N,)),
            *_lain(2, (0, 1), "a"),
            *_lain(1, (0,), "i", (2 * _N,)),
        ],
        (0, 1),
        "embedding",
    ),
)

_HYBRID = (
    Alphabet(
        "shards and copies",
        (_whole("xyz", 2), InputKind(("p", "q", "r"), (_N, _N), (COPIES, WHOLE))),
        _operators("matmul add relu replicate reduce shards concat[0] concat[1] transpose[1,0]"),
        3,
    ),
    Alphabet(
        "products of shards",
        (
            _whole("xyz", 2),
            InputKind(("p", "q"), (_N, _N), (COPIES, WHOLE)),
            InputKind(("s", "t"), (_N // 2, _N), (0, WHOLE)),
            InputKind(("u", "v"), (_N, _N // 2), (1, WHOLE)),
        ),
        _operators(
            "matmul add relu transpose[1,0] replicate reduce partition[0] partition[1] combine[0] "
            "combine[1] concat[0] concat[1] split[0,0] split[0,1] split[1,0] split[1,1]"
        ),
        3,
        2,
    ),
)

ALPHABETS = (*_ALGEBRAIC, *_PARALLEL, *_HYBRID)
"""The alphabets of `python -m tools.rewriting.generate`."""
