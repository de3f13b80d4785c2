"""The graph files of checkpoints, each made once.

TensorFlow writes the graph beside every checkpoint. Between two saves of a training the graph does
not change, but to make its file is Python code, for which the steps wait.
"""

from __future__ import annotations

import weakref
from typing import Any

import tensorflow as tf

__all__ = ["install"]

v1 = tf.compat.v1

_export = v1.train.Saver.export_meta_graph

_files: weakref.WeakKeyDictionary[tf.Graph, tuple[Any, bytes]] = weakref.WeakKeyDictionary()
"""For each graph the content of its last file, and all on which the content depends."""


def install() -> None:
    """Let savers write a graph's last file again while the graph is the same."""
    v1.train.Saver.export_meta_graph = export_meta_graph


def export_meta_graph(self: Any, filename: Any = None, *args: Any, **kwargs: Any) -> Any:
    """``Saver.export_meta_graph``; `Saver.save` calls it with these arguments."""
    graph = v1.get_default_graph()
    if not filename or args or kwargs.keys() != {"strip_default_attrs", "save_debug_info"}:
        return _export(self, filename, *args, **kwargs)
    if kwargs["save_debug_info"]:
        return _export(self, filename, **kwargs)
    collections = [(name, len(graph.get_collection_ref(name))) for name in graph.collections]
    saver = self.saver_def.SerializeToString(deterministic=True)
    key = graph.version, collections, saver, bool(kwargs["strip_default_attrs"])
    last, content = _files.get(graph, (None, b""))
    if key != last:
        made = _export(self, filename, **kwargs)
        with tf.io.gfile.GFile(filename, "rb") as file:
            _files[graph] = key, file.read()
        return made
    written = f"{filename}.written"
    with tf.io.gfile.GFile(written, "wb") as file:
        file.write(content)
    tf.io.gfile.rename(written, filename, overwrite=True)
    return v1.MetaGraphDef.FromString(content)
