"""From a user's words to pins: the operators and indices that a fixed dimension is about."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from math import prod

from tensoropt.cost.cluster import Cluster
from tensoropt.errors import OptionError
from tensoropt.graph.operator import Graph
from tensoropt.parallel.choices.fixed_dimension import FixedDimension
from tensoropt.parallel.choices.pins import PinnedIndices, Pins
from tensoropt.parallel.configuration import piece_limits
from tensoropt.parallel.mesh import Mesh
from tensoropt.parallel.strategy import derivations_of
from tensoropt.planner.fixed.patterns import matcher
from tensoropt.planner.names.dimension_names import BATCH, dimension_names
from tensoropt.planner.names.layer_names import forward_work
from tensoropt.planner.names.named_operators import named_operators

__all__ = ["pins_of"]

_ALL = "all"
"""The word for all levels."""
_INNERMOST = "device"
"""The word for the innermost level, whatever its name is."""
_EITHER = " then "
"""Between dimensions of which each operator divides one, as in tables of layers."""
_NEAREST = 3


def pins_of(
    words: Sequence[FixedDimension],
    graph: Graph,
    batch_placeholders: Collection[str],
    cluster: Cluster,
    devices: int,
) -> Pins:
    """Return the pins of a step.

    A pattern names layers: then the operators that compute in their forward pass are pinned, if
    they have the dimension. A pattern that names no layer names operators, variables included.

    Args:
        words: the dimensions that are divided by hand.
        graph: the step.
        batch_placeholders: the placeholders whose first dimension is the batch.
        cluster: the cluster, whose levels the words name.
        devices: the number of devices.

    Raises:
        OptionError: a pattern that nothing matches; a dimension that the layers lack; an unknown
            level; words that contradict one another; a dimension that cannot be divided so.
    """
    step = _Step(graph, batch_placeholders, cluster.level_counts(devices))
    levels = [level.name for level in cluster.levels]
    for word in words:
        step.pin(word, _pieces(word, levels, cluster.name))
    step.check_together()
    pins = {name: tuple(dict.fromkeys(of)) for name, of in step.pinned.items()}
    return Pins(tuple(words), pins, tuple(step.by_word), step.names_batch)


class _Step:
    """A step with the pins so far.

    Attributes:
        pinned: the pins of each operator, by name.
        by_word: the operators that each word pins.
        names_batch: whether a pin is about the batch.
    """

    def __init__(self, graph: Graph, batched: Collection[str], counts: Sequence[int]) -> None:
        self._graph, self._counts = graph, tuple(counts)
        self._mesh = Mesh.of(prod(counts), counts)
        self._names = dimension_names(graph, batched)
        self._derivations = derivations_of(graph)
        self._work = forward_work(named_operators(graph))
        self._readers: dict[str, set[str]] = {}
        for operator in graph:
            for tensor in operator.inputs if operator.gradient is None else ():
                self._readers.setdefault(tensor.operator, set()).add(operator.name)
        self.pinned: dict[str, list[PinnedIndices]] = {}
        self.by_word: list[frozenset[str]] = []
        self.names_batch = False
        self._word_of: dict[str, list[FixedDimension]] = {}

    def pin(self, word: FixedDimension, pieces: tuple[int | None, ...]) -> None:
        """Pin the operators of a word."""
        members = self._members(word)
        pins = {
            name: PinnedIndices(indices, pieces)
            for name, is_output in members.items()
            if (indices := self._indices(name, word.dimension, is_output=is_output))
        }
        if not pins:
            raise self._no_dimension(word, members)
        if not any(self._can_keep(name, pin) for name, pin in pins.items()):
            raise self._cannot(word, pins)
        self.by_word.append(frozenset(pins))
        for name, pin in pins.items():
            self.names_batch |= any(BATCH in self._names[name][n] for n in pin.indices)
            self.pinned.setdefault(name, []).append(pin)
            self._word_of.setdefault(name, []).append(word)

    def check_together(self) -> None:
        """Check that no operator has pins that contradict one another.

        Raises:
            OptionError: an index with two divisions; more pieces at a level than it has groups.
        """
        for name, pins in self.pinned.items():
            wanted = {pin.indices: pin.wanted(self._counts) for pin in pins}
            is_same = all(wanted[pin.indices] == pin.wanted(self._counts) for pin in pins)
            at_levels = [prod(pieces) for pieces in zip(*wanted.values(), strict=True)]
            fits = all(c % n == 0 for c, n in zip(self._counts, at_levels, strict=True))
            if not (is_same and fits):
                got = " and ".join(map(repr, map(str, dict.fromkeys(self._word_of[name]))))
                raise OptionError(
                    "fixed divides a dimension in one way, and each level divides one dimension of "
                    f"an operator. Got {got} for {name!r}; leave one of them out."
                )

    def _members(self, word: FixedDimension) -> dict[str, bool]:
        """Return the operators that a pattern names, and whether operators outside read them."""
        matches = matcher(word.pattern)
        layers = [layer for layer in self._work if matches(layer)]
        if not layers:
            named = [
                operator.name
                for operator in self._graph
                if not (operator.is_constant or operator.is_placeholder or operator.gradient)
                and matches(operator.name)
            ]
            if not named:
                raise self._no_layer(word)
            return dict.fromkeys(named, True)
        members: dict[str, bool] = {}
        for layer in layers:
            within = set(self._work[layer])
            members |= {
                name: not self._readers.get(name, {""}) <= within for name in self._work[layer]
            }
        return members

    def _indices(self, name: str, dimension: str, *, is_output: bool) -> tuple[int, ...]:
        """Return the indices of an operator that a word is about; none if it lacks the dimension.

        Args:
            name: the operator.
            dimension: the word: a name, several of them, or the number of a dimension of outputs.
            is_output: whether its output is one of the layer.
        """
        if _is_number(dimension):
            outputs = self._derivations[name].outputs[:1] if is_output else ()
            dims = [n for output in outputs for n in output]
            number = int(dimension)
            found = dims[number] if -len(dims) <= number < len(dims) else None
            return () if found is None else (found,)
        wanted = dimension.split(_EITHER)
        return tuple(n for n, own in enumerate(self._names[name]) if own in wanted)

    def _can_keep(self, name: str, pin: PinnedIndices) -> bool:
        """Whether one of the pinned indices can have all the pieces."""
        derivation, wanted = self._derivations[name], pin.wanted(self._counts)
        if any(count % parts for count, parts in zip(self._counts, wanted, strict=True)):
            return False
        pieces = prod(wanted)
        limits = piece_limits(derivation, self._mesh)
        return any(limits[n][0] % pieces == 0 or pieces <= limits[n][1] for n in pin.indices)

    def _no_layer(self, word: FixedDimension) -> OptionError:
        near = get_close_matches(word.pattern, self._work, _NEAREST, 0.0)
        return OptionError(
            "a pattern names a layer or an operator of the step. Got "
            f"{word.pattern!r}, which names none; the nearest layers are "
            f"{', '.join(map(repr, near))}. `tensoropt show PLAN --layers` lists all of them."
        )

    def _no_dimension(self, word: FixedDimension, members: Collection[str]) -> OptionError:
        known = dict.fromkeys(name for member in members for name in self._names[member])
        what = f"a dimension of {word.pattern!r}"
        if _is_number(word.dimension):
            return OptionError(
                f"{what} is one of its outputs', counted from 0, or from the last by -1. Got "
                f"{word.dimension}; give a name: {', '.join(known)}."
            )
        return OptionError.one_of(what, word.dimension, known)

    def _cannot(self, word: FixedDimension, pins: Mapping[str, PinnedIndices]) -> OptionError:
        name, pin = next(iter(pins.items()))
        index = self._derivations[name].indices[pin.indices[0]]
        pieces = prod(pin.wanted(self._counts))
        why = f" ({index.reason})" if index.reason else ""
        return OptionError(
            "a fixed dimension can be divided into as many pieces as its levels have groups. Got "
            f"{str(word)!r}: {pieces} pieces of the {index.extent} of {name!r}{why}, on levels of "
            f"{' x '.join(map(str, self._counts))}; give fewer levels, or parts as 'device/2'."
        )


def _is_number(dimension: str) -> bool:
    return dimension.lstrip("-").isdecimal()


def _pieces(word: FixedDimension, levels: Sequence[str], cluster: str) -> tuple[int | None, ...]:
    """Return the pieces at each level of a cluster; None for one in each group.

    Raises:
        OptionError: the cluster has no level of a name; a number of parts that is none.
    """
    if _ALL in word.levels:
        return (None,) * len(levels)
    pieces: list[int | None] = [1] * len(levels)
    for text in word.levels:
        level, slash, parts = text.partition("/")
        if level == _INNERMOST and level not in levels:
            level = levels[-1]
        singular = level if level in levels else level.removesuffix("s")
        if singular not in levels:
            known = [*levels, _ALL, "whole"]
            raise OptionError.one_of(f"a level of cluster {cluster}", text, known)
        if slash and not (parts.isdecimal() and int(parts)):
            raise OptionError(
                f"parts over a level are a number such as in '{level}/2'. Got {text!r}; give one."
            )
        pieces[levels.index(singular)] = int(parts) if slash else None
    return tuple(pieces)
