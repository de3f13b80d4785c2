"""What ranks compute of a split batch normalisation, against NumPy in double precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.errors import OptionError
from tensoropt.execution.native.library import SWITCH, batch_norm_operators
from tensoropt.execution.rules.batch_norm_kernels import Kernels, kernels_for

tensoropt.enable_graph_mode()

EPSILON = 1e-3
SHARDS = 2
Arrays = list[np.ndarray[Any, Any]]


@pytest.fixture(params=["native", "TensorFlow"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The kernels to test. The operators in C++ load wherever tests run."""
    monkeypatch.setenv(SWITCH, "1" if request.param == "native" else "0")
    batch_norm_operators.cache_clear()
    yield request.param
    batch_norm_operators.cache_clear()


def drawn(shape: tuple[int, ...], offset: float) -> tuple[Arrays, Arrays, Arrays]:
    """Images and gradients of each shard, and scale and offset."""
    random = np.random.default_rng(sum(shape))
    images = [random.normal(offset, 1.0, shape).astype(np.float32) for _ in range(SHARDS)]
    upstream = [random.normal(0.3, 1.0, shape).astype(np.float32) for _ in range(SHARDS)]
    factors = [random.uniform(0.5, 2.0, shape[-1:]).astype(np.float32) for _ in range(2)]
    return images, upstream, factors


def made(kernels: Kernels, images: Arrays, upstream: Arrays, factors: Arrays) -> list[Any]:
    """Return for each shard: normalised images, mean, variance, sums and gradient."""
    scale, offset = (tf.constant(each) for each in factors)
    shards = [tf.constant(x) for x in images]
    own, spread = tf.unstack(tf.concat([kernels.statistics(x) for x in shards], 0), axis=1)
    mean, variance = tf.reduce_mean(own, 0), tf.math.reduce_variance(own, 0)
    variance += tf.reduce_mean(spread, 0)
    known = [(x, scale, mean, variance) for x in shards]
    normalised = [kernels.normalised(x, scale, offset, mean, variance) for x in shards]
    both = zip(upstream, known, strict=True)
    sums = [kernels.sums(tf.constant(dy), *each) for dy, each in both]
    total = tf.add_n([each for each, _ in sums])
    gradients = [
        kernels.gradient(given, *each, total) for (_, given), each in zip(sums, known, strict=True)
    ]
    rows = zip(normalised, sums, gradients, strict=True)
    return [[y, mean, variance, sum_, gradient] for y, (sum_, _), gradient in rows]


def expected(images: Arrays, upstream: Arrays, factors: Arrays) -> list[Any]:
    """Compute the results of `run` in double precision."""
    x, dy = (np.stack(each).astype(np.float64) for each in (images, upstream))
    scale, offset = factors
    axes = tuple(range(x.ndim - 1))
    mean, variance = x.mean(axes), x.var(axes)
    root = 1 / np.sqrt(variance + EPSILON)
    hat = (x - mean) * root
    dx = scale * root * (dy - dy.mean(axes) - hat * (dy * hat).mean(axes))
    sums = [np.stack([(dy * hat)[n].sum(axes[:-1]), dy[n].sum(axes[:-1])]) for n in range(SHARDS)]
    return [[hat[n] * scale + offset, mean, variance, sums[n], dx[n]] for n in range(SHARDS)]


def run(images: Arrays, upstream: Arrays, factors: Arrays, threads: int = 1) -> list[Any]:
    """Run the kernels on a number of threads."""
    count = SHARDS * images[0].size // images[0].shape[-1]
    config = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=threads, use_per_session_threads=True
    )
    with tf.Graph().as_default(), tf.compat.v1.Session(config=config) as session:
        first = tf.constant(images[0])
        data_format = "NDHWC" if first.shape.rank == 5 else "NHWC"
        kernels = kernels_for(first, data_format, EPSILON, count, says=True)
        outputs = made(kernels, images, upstream, factors)
        found: list[Any] = session.run(outputs)
        types = {operation.type for operation in session.graph.get_operations()}
        assert ("TensorOptBatchNorm" in types) != ("FusedBatchNormV3" in types)
        for tensors, values in zip(outputs, found, strict=True):
            assert [t.shape.as_list() for t in tensors] == [list(v.shape) for v in values]
    return found


# Few channels and many, odd numbers of them and of rows, several blocks and parts, one value each.
SHAPES = [(3, 7, 5, 3), (1, 1, 1, 37), (2, 33, 9, 1), (2, 40, 41, 100), (1, 2, 3, 1030)]


@pytest.mark.parametrize("shape", SHAPES)
def test_kernels_make_what_double_precision_does(shape: tuple[int, ...], kind: str) -> None:
    given = drawn(shape, 2.0)
    for found, true in zip(run(*given), expected(*given), strict=True):
        for value, truth in zip(found, true, strict=True):
            scale = max(1.0, float(np.abs(truth).max()))
            np.testing.assert_allclose(value, truth, rtol=2e-5, atol=1e-5 * scale)


def test_in_cpp_means_far_from_zero_cost_no_digits_and_threads_change_none() -> None:
    given = drawn((4, 64, 63, 60), 1e4)  # several parts
    found, true = run(*given), expected(*given)
    for value, truth in zip(found, true, strict=True):
        np.testing.assert_allclose(value[1], truth[1], rtol=1e-7)
        np.testing.assert_allclose(value[2], truth[2], rtol=1e-5)
    # The first rows lie far from all others.
    given[0][0][0, 0] = -1e4
    alone = run(*given)
    np.testing.assert_allclose(alone[0][2], expected(*given)[0][2], rtol=1e-5)
    for one, four in zip(alone, run(*given, threads=4), strict=True):
        assert [a.tobytes() for a in one] == [a.tobytes() for a in four]


def test_five_dimensions_are_rows_of_channels_too() -> None:
    given = drawn((2, 3, 4, 5, 6), 0.0)
    for found, true in zip(run(*given), expected(*given), strict=True):
        np.testing.assert_allclose(found[4], true[4], rtol=1e-4, atol=1e-5)


def test_without_a_compiler_one_note_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", "false")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    batch_norm_operators.cache_clear()
    try:
        assert [batch_norm_operators(says=True) for _ in range(2)] == [None, None]
        said = capsys.readouterr().err
        assert said.count("cannot be loaded here. Got false that ends with status 1:") == 1
        assert said.endswith(f"{SWITCH}=0 chooses TensorFlow's kernels without this note.\n")
        batch_norm_operators.cache_clear()
        monkeypatch.setenv(SWITCH, "0")
        assert batch_norm_operators(says=True) is None
        assert capsys.readouterr().err == ""
        batch_norm_operators.cache_clear()
        monkeypatch.setenv(SWITCH, "maybe")
        with pytest.raises(OptionError, match="Got 'maybe'; unset it"):
            batch_norm_operators(says=True)
    finally:
        batch_norm_operators.cache_clear()
