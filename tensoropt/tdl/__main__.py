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
    """What public programs use.

    Attributes:
        programs: how many were looked at.
        kinds: what the kinds of operators mean.
        used: per operator type its kind and how many programs use it.
    """

    programs: int
    kinds: Mapping[str, str]
    used: Mapping[str, tuple[str, int]]


def common_operators() -> CommonOperators:
    """The operator types of public programs, as the package's data file has them."""
    text = files("tensoropt.tdl").joinpath("common_operators.json").read_text("utf-8")
    data = json.loads(text)
    used = {name: (entry["kind"], entry["programs"]) for name, entry in data["operators"].items()}
    return CommonOperators(data["programs"], data["kinds"], used)


def count() -> str:
    """The number of described types, and the common ones without a description, by kind.

    Every described type counts: the tests run each in pieces, by its kernel or by the rule that
    spells its splits out, at least one index truly split, and compare with TensorFlow's own
    kernel on the whole.
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
        found = [
            f"{name} ({programs})"
            for name, (own, programs) in common.used.items()
            if own == kind and name not in types
        ]
        lines.append(f"  {kind} ({meaning}): {', '.join(found) or 'none'}")
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tensoropt.tdl", description=__doc__)
    parser.add_argument("--count", action="store_true", help="count the described operator types")
    if not parser.parse_args(arguments).count:
        parser.error("say what to do: --count")
    print(count())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
