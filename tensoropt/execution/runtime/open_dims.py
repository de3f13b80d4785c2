"""The dimensions of fed tensors whose sizes may differ between runs of one program."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import tensorflow as tf

from tensoropt.execution.runtime.emitted_graph import Extents
from tensoropt.graph.from_tensorflow import FED_OUTPUT

__all__ = ["OpenDims"]

_LEAST = 4  # An extent of 1 is broadcast and others are not, so programs at small ones may differ.


class OpenDims:
    """The dimensions that a script leaves unknown, except those along which batches are split.

    Args:
        script: the script's graph.
        split: names of the placeholders whose first dimension is split.
        are_any: whether any dimension may be open.
    """

    def __init__(self, script: tf.Graph, split: Collection[str], are_any: bool) -> None:
        self._script = script
        self._split = set(split)
        self._are_any = are_any
        self._unknown: dict[str, frozenset[int]] = {}
        self._held: set[tuple[frozenset[str], frozenset[tuple[str, Extents]]]] = set()

    def split(self, placeholders: Collection[str]) -> None:
        """Note further placeholders whose first dimension is split."""
        self._split.update(placeholders)
        for name in placeholders:
            self._unknown.pop(name, None)

    def opened(self, shapes: Mapping[str, Extents]) -> dict[str, Extents]:
        """Shapes of fed tensors, with None for the open extents."""
        if not self._are_any:
            return dict(shapes)
        return {
            name: tuple(None if dim in unknown else n for dim, n in enumerate(shape))
            for name, shape in shapes.items()
            for unknown in (self._of(name),)
        }

    def may_differ(self, roots: Collection[str], shapes: Mapping[str, Extents]) -> bool:
        """Whether a program for all sizes may be emitted from a run with these shapes."""
        if self._key(roots, shapes) in self._held:
            return False
        return all(
            extent is not None and extent >= _LEAST
            for name, shape in shapes.items()
            for dim, extent in enumerate(shape)
            if dim in self._of(name)
        )

    def hold(self, roots: Collection[str], shapes: Mapping[str, Extents]) -> None:
        """Note that a program of some operators does not hold for all sizes."""
        self._held.add(self._key(roots, shapes))

    def _key(
        self, roots: Collection[str], shapes: Mapping[str, Extents]
    ) -> tuple[frozenset[str], frozenset[tuple[str, Extents]]]:
        return frozenset(roots), frozenset(self.opened(shapes).items())

    def _of(self, name: str) -> frozenset[int]:
        """The open dimensions of the tensor that is fed by a name, see `fed_operator`."""
        if name not in self._unknown:
            fed = FED_OUTPUT.fullmatch(name)
            tensor = f"{fed['operator']}:{fed['index']}" if fed else f"{name}:0"
            shape = self._script.get_tensor_by_name(tensor).shape
            dims = enumerate(shape.as_list() if shape.rank is not None else [])
            unknown = {dim for dim, extent in dims if extent is None}
            self._unknown[name] = frozenset(unknown - ({0} if name in self._split else set()))
        return self._unknown[name]
