"""Text that every machine with Python has: the documentation strings of its standard library."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["Characters", "library_text"]

MODULES = ("argparse", "decimal", "typing", "random", "statistics", "collections", "textwrap")


def library_text(modules: Sequence[str] = MODULES) -> str:
    """The documentation strings of some standard modules, one after the other."""
    found = []
    for module in modules:
        spec = importlib.util.find_spec(module)
        if spec is None or spec.origin is None:
            raise FileNotFoundError(f"the source of the module {module} is not on this machine")
        tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        for node in ast.walk(tree):
            if isinstance(node, documented) and (text := ast.get_docstring(node)):
                found.append(text)
    return "\n\n".join(found)


class Characters:
    """Numbers for the most frequent characters of a text; all others are number 0.

    Args:
        text: to count.
        size: how many numbers there are.
    """

    def __init__(self, text: str, size: int) -> None:
        counts: dict[str, int] = {}
        for character in text:
            counts[character] = counts.get(character, 0) + 1
        frequent = sorted(counts, key=lambda character: (-counts[character], character))
        self._numbers = {character: n for n, character in enumerate(frequent[: size - 1], 1)}

    def encode(self, text: str) -> npt.NDArray[np.int32]:
        """The number of each character."""
        return np.array([self._numbers.get(character, 0) for character in text], np.int32)
