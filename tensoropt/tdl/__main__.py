"""``python -m tensoropt.tdl --count``: how many operator types are described, and which are not."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files

from tensoropt.tdl import described

__all__ = ["CommonOperators", "common_operators", "count", "main"]


@dataclass(frozen=True, slots=True)
class CommonOperators:
    """The operator types that public programs use.

    Attributes:
        programs: number of programs.
        kinds: per kind of operators its meaning.
        used: per operator type its kind and the number of programs that use it.
    """

    programs: int
    kinds: Mapping[str, str]
    used: Mapping[str, tuple[str, int]]


def common_operators() -> CommonOperators:
    """Return the operator types of public programs, from the data file of the package."""
    text = files("tensoropt.tdl").joinpath("common_operators.json").read_text("utf-8")
    data = json.loads(text)
    used = {name: (entry["kind"], entry["programs"]) for name, entry in data["operators"].items()}
    return CommonOperators(data["programs"], data["kinds"], used)


def count() -> str:
    """Return the number of described types, and the common types without a description, by kind.

    The tests compare every described type in pieces, split by its kernel or by a rule of the
    execution, with TensorFlow's kernel on the whole.
    """
    types = frozenset(described())
    common = common_operators()
    lines = [
        f"{len(types)} operator types are described, each checked in pieces against its kernel.",
        "",
        f"Undescribed among the operators of {common.programs} public TensorFlow programs "
        "(in brackets the number of programs):",
    ]
    for kind, meaning in common.kinds.items():
        undescribed = [
            f"{name} ({programs})"
            for name, (its_kind, programs) in common.used.items()
            if its_kind == kind and name not in types
        ]
        lines.append(f"  {kind} ({meaning}): {', '.join(undescribed) or 'none'}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command, and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tensoropt.tdl", description=__doc__)
    parser.add_argument("--count", action="store_true", help="count the described operator types")
    if not parser.parse_args(arguments).count:
        parser.error("an action is needed: --count")
    print(count())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
