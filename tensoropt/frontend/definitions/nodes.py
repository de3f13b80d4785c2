"""Nodes of a GraphDef by the names that others read them by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["needed_by", "node_of"]


def node_of(name: str) -> str:
    """The name of the node that an input is of: a tensor's, or one that is waited for."""
    return name.lstrip("^").partition(":")[0]


def needed_by(nodes: Mapping[str, Any], names: Iterable[str]) -> set[str]:
    """The names of some nodes, and of all that they need.

    Args:
        nodes: all of a definition, by name.
        names: of nodes, or as inputs are named.
    """
    waiting = {node_of(name) for name in names}
    needed: set[str] = set()
    while waiting:
        name = waiting.pop()
        needed.add(name)
        waiting |= {node_of(each) for each in nodes[name].input} - needed
    return needed
