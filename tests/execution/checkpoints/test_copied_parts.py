"""Copies of parts are written as TensorFlow writes them, byte for byte."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

import tensoropt
from tensoropt.execution.checkpoints import unbuffered
from tensoropt.execution.checkpoints.copied_parts import PartWriter
from tensoropt.execution.checkpoints.part_index import PartIndex
from tensoropt.execution.native.library import slice_copies

tensoropt.enable_graph_mode()

Arrays = list[np.ndarray[Any, Any]]

SLICES = [
    ("kernel", "7 5 0,4:0,5", (4, 5), "float32"),
    ("kernel", "7 5 4,3:0,5", (3, 5), "float32"),
    ("flags", "", (13,), "bool"),  # the values after it begin at an odd place
    ("nothing", "", (0, 3), "float32"),
    ("kernel/slot", "300 2 128,172:1,1", (172, 1), "float64"),
    ("half", "", (33, 3), "bfloat16"),
    ("step", "", (), "int64"),
    ("phase", "", (2, 2), "complex64"),
    ("kernel_2", "", (1500, 7), "float16"),
]


def drawn(seed: int, slices: list[Any]) -> Arrays:
    random = np.random.default_rng(seed)
    return [
        np.asarray(random.normal(0, 2, shape)).astype(tf.as_dtype(dtype).as_numpy_dtype)
        for _, _, shape, dtype in slices
    ]


def writer_of(slices: list[Any], copy: Any) -> PartWriter:
    names, specs, _, dtypes = zip(*slices, strict=True)
    return PartWriter(names, specs, [tf.as_dtype(dtype) for dtype in dtypes], copy)


def files_of(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.iterdir()}


def written(writer: PartWriter, folder: Path, values: Arrays) -> dict[str, bytes]:
    folder.mkdir()
    write = writer.copied(values)
    for value in values:
        value[...] = np.zeros((), value.dtype)  # The steps go on.
    write(str(folder / "part"))
    return files_of(folder)


@pytest.mark.parametrize(
    "slices",
    [SLICES, SLICES[2:3], SLICES[3:4], [(f"v{n:05}" * 8, "", (1,), "int8") for n in range(8000)]],
    ids=["many types", "odd", "empty", "several blocks"],
)
def test_later_copies_have_the_bytes_that_tensorflow_writes(
    slices: list[Any], tmp_path: Path
) -> None:
    copy = slice_copies(says=True)
    assert copy is not None
    writer, tensorflow = writer_of(slices, copy), writer_of(slices, None)
    for save in range(3):
        found = written(writer, tmp_path / f"found{save}", drawn(save, slices))
        assert found == written(tensorflow, tmp_path / f"truth{save}", drawn(save, slices))
    assert writer._index is not None  # Later copies were not TensorFlow's.


def test_tensorflow_writes_strings_and_tensors_of_another_shape(tmp_path: Path) -> None:
    copy = slice_copies(says=True)
    strings = writer_of([("position", "", (2,), "string")], copy)
    for number, texts in enumerate(([b"a", b"b"], [b"a longer one", b""])):
        written_path = tmp_path / str(number)
        strings.copied([np.array(texts, object)])(str(written_path))
        assert list(tf.train.load_checkpoint(str(written_path)).get_tensor("position")) == texts
    grows = writer_of([("grows", "", (3, 4), "float32")], copy)
    every = np.arange(12, dtype=np.float32).reshape(3, 4)
    for number, values in enumerate((every, every.copy(), every[1:], every.T, every.T, every)):
        grows.copied([values])(str(tmp_path / f"grows{number}"))
        found = tf.train.load_checkpoint(str(tmp_path / f"grows{number}")).get_tensor("grows")
        assert np.array_equal(found, values)


def test_an_index_of_another_form_is_refused(tmp_path: Path) -> None:
    writer = writer_of(SLICES, None)
    written(writer, tmp_path / "part", drawn(0, SLICES))
    content = (tmp_path / "part" / "part.index").read_bytes()
    names = [name for name, *_ in SLICES]
    sizes = [value.nbytes for value in drawn(0, SLICES)]
    assert PartIndex.of(content, names, sizes) is not None
    assert PartIndex.of(content, names, sizes[::-1]) is None
    assert PartIndex.of(content, names[::-1], sizes) is None
    with_kind = bytearray(content)
    with_kind[PartIndex.of(content, names, sizes)._blocks[0][1]] = 1  # type: ignore[union-attr]
    assert PartIndex.of(bytes(with_kind), names, sizes) is None


@pytest.mark.parametrize("size", [0, 1, 4096, 10000])
@pytest.mark.parametrize("is_refused", [False, True])
def test_files_are_written_past_the_cache_or_through_it(
    size: int, is_refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = os.open

    def refusing(path: Any, flags: int, *mode: int) -> int:
        if flags & getattr(os, "O_DIRECT", 0):
            raise OSError(errno.EINVAL, "no such files here")
        return opened(path, flags, *mode)

    if is_refused:
        monkeypatch.setattr(os, "open", refusing)
    pages = unbuffered.pages_for(size)
    pages[:size] = np.random.default_rng(0).integers(0, 256, size)
    unbuffered.write(str(tmp_path / "file"), pages, size)
    assert (tmp_path / "file").read_bytes() == pages[:size].tobytes()


def test_pages_are_used_again_for_files_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unbuffered, "_free", [])
    first, second = unbuffered.pages_for(9000), unbuffered.pages_for(5000)
    for pages in (first, second):
        unbuffered.give_back(pages)
    assert unbuffered.pages_for(4097) is second
    assert unbuffered.pages_for(4097) is first
    unbuffered.give_back(first)
    third = unbuffered.pages_for(20000)  # The smaller pages are freed.
    unbuffered.give_back(third)
    assert unbuffered.pages_for(1) is third


def test_an_error_of_the_disk_is_raised(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        unbuffered.write(str(tmp_path / "missing" / "file"), unbuffered.pages_for(1), 1)
