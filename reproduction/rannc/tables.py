"""The results and the claims, in words and tables."""

from __future__ import annotations

from collections.abc import Sequence

from reproduction.rannc.claims import Claim
from reproduction.rannc.models import SYSTEMS, Line

__all__ = ["claims_table", "coarsening", "throughputs", "told"]


def told(line: Line) -> str:
    """The lines about a model: one for the model, and one for each system."""
    head = (
        f"{line['model']}: {line['parameters'] / 1e6:,.0f} million parameters, "
        f"{line['operators']} operators, {line['atoms']} atomic components; longest block "
        f"{line['imbalance']:.2f} of the mean, by its longest component at least "
        f"{max(1.0, line['longest_atom']):.2f}; "
        f"phases up to stages {line['phases_seconds']} s"
    )
    rows = [
        f"  {name}: {_words(found)}; {found['seconds']} s" for name, found in line["found"].items()
    ]
    return "\n".join([head, *rows])


def throughputs(lines: Sequence[Line]) -> str:
    """A Markdown table of examples per second of all systems, and CPU seconds of our search."""
    rows = []
    for line in lines:
        found = line["found"]
        rates = [_cell(found[name]) if name in found else "" for name in SYSTEMS]
        seconds = f"{found['ours']['seconds']:.0f}" if "ours" in found else ""
        rows.append((line["model"], *rates, seconds))
    return _table(("model", *SYSTEMS, "ours, s"), rows)


def coarsening(lines: Sequence[Line]) -> str:
    """A Markdown table of RaNNC's examples per second by the number of blocks, and without
    blocks."""
    systems = ("rannc, 8 blocks", "rannc, 16 blocks", "rannc", "rannc, 64 blocks", "without blocks")
    rows = [
        (line["model"], *(_cell(line["found"][name]) for name in systems if name in line["found"]))
        for line in lines
        if "rannc, 8 blocks" in line["found"]
    ]
    return _table(("model", "8 blocks", "16", "32", "64", "without"), rows)


def claims_table(claims: Sequence[Claim]) -> str:
    """A Markdown table of the claims."""
    rows = [(c.claim, c.paper, c.here, "yes" if c.holds else "**no**") for c in claims]
    return _table(("claim", "paper", "here", "holds"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    filled = [[*row, *[""] * (len(head) - len(row))] for row in rows]
    lines = [head, ["---"] * len(head), *filled]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _words(found: Line) -> str:
    if "error" in found:
        return str(found["error"])
    words = [f"{found['examples_per_second']} examples/s", f"{found['memory_gb']} GB"]
    if "stages" in found:
        devices = " ".join(str(devices) for _, _, devices in found["stages"])
        words += [
            f"{len(found['stages'])} stages on {devices} devices",
            f"{found['copies']} copies",
            f"{found['microbatches']} microbatches",
            str(found["schedule"]),
        ]
    elif "way" in found:
        words += [str(found["way"]), *(["peak estimated"] if found["peak_is_estimated"] else [])]
    elif "layers" in found:
        of_tree = [f"{count} layers {tree}" for tree, count in found["layers"].items()]
        words += [f"{found['microbatches']} microbatches", *of_tree]
    elif "parts" in found:
        again = " with recomputation" if found["recompute"] else ""
        words.append(f"over {found['parts']} devices{again}")
    return ", ".join(words)


def _cell(found: Line) -> str:
    return f"{found['examples_per_second']:.3g}" if "examples_per_second" in found else "-"
