"""A checkpoint's files, replaced at once: if a job is killed, the last or the previous one loads.

TensorFlow's format is an index, ``NAME.index``, that has the number of data files, and data files
such as ``NAME.data-00000-of-00004``. Files are made and moved in this order:

1. The first rank removes what killed saves have left, and makes the folder ``NAME.saving``.
2. Every rank writes its slices there, each part an index and a data file, and syncs them.
3. The first rank merges the parts there, and syncs the index of the whole.
4. It moves the data files to ``NAME.data-*``. An old checkpoint of the same name is not touched:
   the new one has another number of files, so their names differ.
5. It moves the index to ``NAME.index``, in one go. Before, the name stands for the old checkpoint
   or for none; from here on for the new one, whole.
6. It removes the old one's data files, and the folder.

TensorFlow's saver goes on from there: its file ``checkpoint`` is replaced in one go, too, and what
is too old is removed after that.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable

import tensorflow as tf

__all__ = [
    "absolute",
    "begin",
    "folder",
    "is_there",
    "is_visible",
    "part",
    "publish",
    "sync",
    "tidy",
    "whole",
]

_SAVING = ".saving"
_VISIBLE_SECONDS = 5.0  # within which what one machine has made is seen on others
_LOOKS = 20

gfile = tf.io.gfile


def absolute(prefix: str) -> str:
    """The same for all ranks, whatever folders they work in."""
    return prefix if "://" in prefix else os.path.abspath(prefix)


def folder(prefix: str) -> str:
    """The folder of a checkpoint's files while it is saved."""
    return prefix + _SAVING


def part(prefix: str, number: int) -> str:
    """The name of a part while it is saved."""
    return f"{folder(prefix)}/part-{number}"


def whole(prefix: str) -> str:
    """The name of all parts, merged, while they are saved."""
    return f"{folder(prefix)}/whole"


def begin(prefix: str) -> int:
    """Step 1. Returns of how many files the checkpoint of this name is; 0 if there is none."""
    parent, name = os.path.split(prefix)
    if not gfile.exists(parent):
        gfile.mkdir(parent)  # one level, as TensorFlow does
    for entry in _listed(parent):
        if entry.endswith(_SAVING) and _stem(entry.removesuffix(_SAVING)) == _stem(name):
            tidy(os.path.join(parent, entry.removesuffix(_SAVING)))
    gfile.mkdir(folder(prefix))
    return _files(prefix)


def publish(prefix: str) -> None:
    """Steps 4 to 6, of what is merged."""
    parent, merged = os.path.dirname(prefix), whole(prefix)
    sync(f"{merged}.index")
    for entry in _listed(folder(prefix)):
        suffix = entry.removeprefix(os.path.basename(merged))
        if suffix.startswith(".data-"):
            gfile.rename(merged + suffix, prefix + suffix, overwrite=True)
    sync(parent)
    gfile.rename(f"{merged}.index", f"{prefix}.index", overwrite=True)
    sync(parent)
    tidy(prefix)


def tidy(prefix: str) -> None:
    """Remove what is not of the checkpoint of this name, if there is one: step 6, at any time."""
    parent, name = os.path.split(prefix)
    kept = _files(prefix)
    for entry in _listed(parent):
        data = re.fullmatch(re.escape(name) + r"\.data-\d{5}-of-(\d{5})", entry)
        if data and int(data[1]) != kept:
            gfile.remove(os.path.join(parent, entry))
    if gfile.exists(folder(prefix)):
        gfile.rmtree(folder(prefix))


def sync(path: str) -> None:
    """Have a file or folder on its disk; elsewhere than in a file system this does nothing."""
    if "://" in path:
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_there(prefix: str) -> bool:
    """Whether this rank sees the checkpoint of this name, of TensorFlow's newer or older format."""
    return bool(gfile.glob([f"{prefix}.index", prefix]))


def is_visible(path: str, exists: Callable[[str], bool] = gfile.exists) -> bool:
    """Whether this rank sees a file or folder; file systems of several machines take a while."""
    for _ in range(_LOOKS):
        if exists(path):
            return True
        time.sleep(_VISIBLE_SECONDS / _LOOKS)
    return False


def _listed(folder: str) -> list[str]:
    return [entry.rstrip("/") for entry in gfile.listdir(folder)]


def _stem(name: str) -> str:
    """A checkpoint's name without the number of its step."""
    return re.sub(r"-\d+$", "", name)


def _files(prefix: str) -> int:
    """The number of data files of the checkpoint of this name; 0 if there is none.

    The index is a table as LevelDB has them. Its first entry is the header: lengths of the key (0
    twice) and of the value, then a protocol buffer whose first field is the number.
    """
    if not gfile.exists(f"{prefix}.index"):
        return 0
    with gfile.GFile(f"{prefix}.index", "rb") as file:
        head = file.read(8)
    if len(head) < 8 or (head[0], head[1], head[3]) != (0, 0, 8):
        return 0  # another file of this name, or one that is cut off
    number = 0
    for position, byte in enumerate(head[4:]):
        number |= (byte & 127) << (7 * position)
        if byte < 128:
            break
    return number
