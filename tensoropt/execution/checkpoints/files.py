"""A checkpoint's files. They replace the old ones in one step: after a kill, either set loads.

TensorFlow's format is an index, ``NAME.index``, that states the number of data files, and data
files such as ``NAME.data-00000-of-00004``. Files are made and moved in this order:

1. The first rank removes files of saves that were killed, and makes the folder ``NAME.saving``.
2. Every rank writes its slices there, each part an index and a data file, and syncs them. A rank
   that writes beside the steps then makes the empty file ``part-N.done``.
3. The first rank merges the parts there, and syncs the index of the whole.
4. It moves the data files to ``NAME.data-*``. An old checkpoint of the same name is not touched:
   the new one has another number of files, so their names differ.
5. It moves the index to ``NAME.index``, in one go. Until then the name stands for the old
   checkpoint, or for none; from then on for the new one.
6. It removes the data files of the old checkpoint, and the folder.

Then TensorFlow's saver replaces its file ``checkpoint``, in one go, too, and after that removes
checkpoints that are too old.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable

import tensorflow as tf

__all__ = [
    "absolute",
    "begin",
    "folder",
    "is_of_service",
    "is_there",
    "is_visible",
    "mark_being_saved",
    "mark_done",
    "part",
    "publish",
    "sync",
    "tidy",
    "tidy_mark",
    "wait_for_parts",
    "wait_until_saved",
    "whole",
]

_SAVING = ".saving"
_VISIBLE_SECONDS = 5.0  # the time within which other machines see a new file
_LOOKS = 20  # the number of looks in this time
_LOOK_SECONDS = 0.02  # between two looks for files of other ranks

gfile = tf.io.gfile


def is_of_service(path: str) -> bool:
    """Whether a path is the address of a service, such as ``gs://...``, and not of a file."""
    return "://" in path


def absolute(prefix: str) -> str:
    """Return a checkpoint's name as an absolute path, since ranks may work in several folders."""
    return prefix if is_of_service(prefix) else os.path.abspath(prefix)


def folder(prefix: str) -> str:
    """The folder of a checkpoint's files while it is saved."""
    return prefix + _SAVING


def part(prefix: str, number: int) -> str:
    """The name of a part while it is saved."""
    return f"{folder(prefix)}/part-{number}"


def mark_done(prefix: str, number: int) -> None:
    """Mark a part as written, for the first rank to see."""
    with gfile.GFile(f"{part(prefix, number)}.done", "w") as file:
        file.write("")


def _is_done(prefix: str, number: int) -> bool:
    """Whether a rank has marked a part as written, and this rank sees the part."""
    return all(gfile.exists(part(prefix, number) + end) for end in (".done", ".index"))


def mark_being_saved(prefix: str) -> None:
    """Make the folder of a checkpoint whose files TensorFlow writes, for other ranks to see."""
    gfile.makedirs(folder(prefix))


def tidy_mark(prefix: str) -> None:
    """Remove the folder that `mark_being_saved` makes."""
    gfile.rmtree(folder(prefix))


def wait_until_saved(prefix: str, has_failed: threading.Event) -> None:
    """Wait until the folder of a checkpoint that is being saved is gone, or another rank fails."""
    while gfile.exists(folder(prefix)) and not has_failed.wait(_LOOK_SECONDS):
        pass


def wait_for_parts(prefix: str, count: int, has_failed: threading.Event) -> bool:
    """Wait until all parts are on the disk. Return False if another rank fails before."""
    while not all(_is_done(prefix, number) for number in range(count)):
        if has_failed.wait(_LOOK_SECONDS):
            return False
    return True


def whole(prefix: str) -> str:
    """The name of the merged parts while they are saved."""
    return f"{folder(prefix)}/whole"


def begin(prefix: str) -> int:
    """Do step 1. Return the number of data files of the present checkpoint, or 0."""
    parent, name = os.path.split(prefix)
    if not gfile.exists(parent):
        gfile.mkdir(parent)  # one level, as TensorFlow does
    for entry in _listed(parent):
        if entry.endswith(_SAVING) and _stem(entry.removesuffix(_SAVING)) == _stem(name):
            tidy(os.path.join(parent, entry.removesuffix(_SAVING)))
    gfile.mkdir(folder(prefix))
    return _files(prefix)


def publish(prefix: str) -> None:
    """Do steps 4 to 6 with the merged parts."""
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
    """Do step 6, at any time: remove all files of this name that no complete checkpoint has."""
    parent, name = os.path.split(prefix)
    kept = _files(prefix)
    for entry in _listed(parent):
        data = re.fullmatch(re.escape(name) + r"\.data-\d{5}-of-(\d{5})", entry)
        if data and int(data[1]) != kept:
            gfile.remove(os.path.join(parent, entry))
    for look in range(_LOOKS):
        if not gfile.exists(folder(prefix)):
            return
        try:
            gfile.rmtree(folder(prefix))
        except tf.errors.FailedPreconditionError:  # another rank has just ended a file in it
            if look + 1 == _LOOKS:
                raise
            time.sleep(_VISIBLE_SECONDS / _LOOKS)


def sync(path: str) -> None:
    """Wait until a file or folder is on its disk; do nothing for the address of a service."""
    if is_of_service(path):
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_there(prefix: str) -> bool:
    """Whether this rank sees the checkpoint, in TensorFlow's newer or older format."""
    return bool(gfile.glob([f"{prefix}.index", prefix]))


def is_visible(path: str, exists: Callable[[str], bool] = gfile.exists) -> bool:
    """Whether this rank sees a file or folder, within the time that shared file systems take."""
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

    The index is a table in LevelDB's format. Its first entry is the header: the lengths of the key
    (0, twice) and of the value, then a protocol buffer whose first field is the number.
    """
    if not gfile.exists(f"{prefix}.index"):
        return 0
    with gfile.GFile(f"{prefix}.index", "rb") as file:
        head = file.read(8)
    if len(head) < 8 or (head[0], head[1], head[3]) != (0, 0, 8):
        return 0  # This is another file of this name, or it is cut off.
    number = 0
    for position, byte in enumerate(head[4:]):
        number |= (byte & 127) << (7 * position)
        if byte < 128:
            break
    return number
