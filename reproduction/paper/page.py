"""The page of claims: the paper's statements, whether they hold here, and the figures."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path

from reproduction.paper.claims import PAPER_SECONDS, Claim, Evidence, Turn
from reproduction.paper.claims.evidence import TITLES
from reproduction.paper.results import Result
from reproduction.paper.tasks import Task, all_tasks, searches

__all__ = ["claims_list", "documented", "page", "summary"]

_HEAD = """# The paper's figures, on the simulated test bed

Each frontier is searched with the costs of a described cluster; nothing was run on it. Figures and
claims follow from these frontiers alone. Memory is the paper's model (parameters once, as they are
read, and every operator's output), in GB of 2**30 bytes; a device has 16 GB, of which 14.5 are for
what is counted. That model knows no copies; where
tensor reuse is judged, memory is that of parameters and of every copy kept for the backward pass.
Network time is that of all collectives; computation is the rest.

"""
Flips = Mapping[float, tuple[int, Sequence[str]]]
"""For each factor of the links' bandwidth the number of judged claims, and the claims whose
judgement changes."""

_MARKER = "<!-- what follows is written by python -m reproduction.paper --document -->"
_FIRST = "<!-- written by python -m reproduction.paper --document -->"
_LAST = "<!-- as far as here -->"
_LINE = 120
"""The most characters of a line of the page."""
_HARD_SPACE = "\N{NO-BREAK SPACE}"
_SHORTER = {
    ", counting every copy that is kept": " copies",
    ", layers as operators": " layers",
    "the frontier has a sharp": "a sharp",
}
"""Words of claims, and those of tables."""
_PICTURES = {
    "6": "Figure 6: cost frontiers on 16 devices",
    "6 VGG16": "Figure 6, for a small model",
    "6 reuse": "Figure 6 with tensor reuse, counting every copy that is kept",
    "7": "Figure 7: what moves the Transformer's frontier",
    "8": "Figure 8: shortest time within 16 GB a device",
}


def page(
    claims: Sequence[Claim],
    evidence: Evidence,
    pictures: Mapping[str, Path],
    failures: Mapping[Task, str],
    flips: Flips,
    turns: Sequence[Turn] = (),
) -> str:
    """The whole page, in Markdown; pictures lie beside it."""
    held = sum(claim.holds for claim in claims)
    parts = [_HEAD, f"## Claims: {held} of {len(claims)} hold\n\n", claims_list(claims)]
    parts += ["\n", sensitivity_lines(flips), "\n", turning_lines(turns)]
    for name, title in _PICTURES.items():
        if name in pictures:
            parts.append(f"\n## {title}\n\n![{title}]({pictures[name].name})\n")
    parts += ["\n## Table 3: time of the search\n\n", _table_3(evidence)]
    parts += ["\n## How good the frontiers are\n\n", _exactness(evidence)]
    if failures:
        parts.append("\n## Not computed\n\n")
        parts += [f"- {task.name}: {why}\n" for task, why in failures.items()]
    return "".join(parts)


def documented(
    text: str, claims: Sequence[Claim], basis: str, flips: Flips, turns: Sequence[Turn] = ()
) -> str:
    """A page of the documentation, with its table of claims, and the claims after its marker,
    replaced.

    Every statement has its verdict, and claims that do not hold their figures; `page` has all.

    Args:
        text: the page.
        claims: all claims.
        basis: a sentence about the data behind the judgements.
        flips: the claims whose judgement changes with other links.
        turns: the claims that do not hold, with other links.
    """
    head, marker, _ = text.partition(_MARKER)
    judged = [claim for claim in claims if not claim.lacks_data]
    failed = claims_list(judged, with_held=False)
    before, first, rest = head.partition(_FIRST)
    if first:
        told = f"{basis} {len(judged)} of {len(claims)} claims were judged."
        tables = f"{_wrapped(told)}\n{summary(claims)}\n{sensitivity_lines(flips)}\n"
        tables += turning_table(turns)
        head = f"{before}{first}\n\n{tables}\n{_LAST}{rest.partition(_LAST)[2]}"
    found = f"{turning_lines(turns)}\n{failed}"
    return f"{head}{marker or _MARKER}\n\n{found}"


def sensitivity_lines(flips: Flips) -> str:
    """The claims whose judgement depends on the bandwidth of links: an item of a list for each
    factor."""
    items = []
    for links, (judged, names) in flips.items():
        listed = "".join(f"; {name}" for name in names).replace("; ", ": ", 1)
        items.append(
            f"With {links:g} times the bandwidth of all links {len(names)} of {judged} claims "
            f"that were judged again come out otherwise{listed}."
        )
    return "".join(map(_item, items))


def turning_lines(turns: Sequence[Turn]) -> str:
    """An item for each claim that does not hold: the links with which it would."""
    return "".join(_item(str(each)) for each in turns)


def turning_table(turns: Sequence[Turn]) -> str:
    """A table of the claims that do not hold: the factors of the links' bandwidth that were tried
    and between which each turns."""
    rows = []
    for turn in turns:
        tried = " to ".join(f"{links:g}" for links in sorted({min(turn.tried), max(turn.tried)}))
        between = f"holds at none of {len(turn.tried)}"
        if turn.at is not None:
            between = " and ".join(f"{links:g}" for links in (*turn.before, turn.at))
        rows.append((turn.claim.figure, _short(turn.claim.claim), tried, between))
    return _table(("figure", "claim that does not hold", "factors tried", "turns between"), rows)


def summary(claims: Sequence[Claim]) -> str:
    """A table with a row for each statement of the paper: the models for which it holds and does
    not hold, and the number of those for which it was not judged. Where these are too many for a
    line, more rows follow without the statement."""
    of_statement: dict[tuple[str, str], dict[str, list[str]]] = {}
    for claim in claims:
        model, _, statement = _short(claim.claim).rpartition(": ")
        told = of_statement.setdefault((claim.figure, statement), {})
        verdict = "not judged" if claim.lacks_data else "holds" if claim.holds else "does not"
        told.setdefault(verdict, []).append(model or "yes")
    rows = []
    for of, told in of_statement.items():
        unjudged = str(len(told.get("not judged", ())) or "")
        width = (_LINE - len("".join([*of, unjudged, "| " * 6, " " * 5]))) // 2
        models = [_cells(told.get(verdict, ()), width) for verdict in ("holds", "does not")]
        lines = list(zip_longest(*models, fillvalue="")) or [("", "")]
        rows.append((*of, *lines[0], unjudged))
        rows += [("", "", *line, "") for line in lines[1:]]
    return _table(("figure", "claim", "holds", "does not", "not judged"), rows)


def _cells(names: Sequence[str], width: int) -> list[str]:
    """Join names with commas, in cells of at most ``width`` characters that divide no name."""
    undivided = ", ".join(name.replace(" ", _HARD_SPACE) for name in names)
    cells = textwrap.wrap(undivided, width, break_long_words=False, break_on_hyphens=False)
    return [cell.replace(_HARD_SPACE, " ") for cell in cells]


def _short(claim: str) -> str:
    for words, fewer in _SHORTER.items():
        claim = claim.replace(words, fewer)
    return claim


def claims_list(claims: Sequence[Claim], *, with_held: bool = True) -> str:
    """The claims of each figure in the order of the figures: whether it holds, and the reason.

    Args:
        claims: the claims.
        with_held: whether those that hold have an item; they are counted in any case.
    """
    groups = []
    for figure in dict.fromkeys(claim.figure for claim in claims):
        of_figure = [claim for claim in claims if claim.figure == figure]
        held = sum(claim.holds for claim in of_figure)
        title = figure if figure.startswith("Table") else f"Figure {figure}"
        items = [
            _item(
                f"{'Yes' if claim.holds else '**No**'} ({claim.by}): *{claim.claim}*; "
                f"{claim.why.removesuffix('.')}."
            )
            for claim in of_figure
            if with_held or not claim.holds
        ]
        listed = "".join(["\n", *items]) if items else ""
        groups.append(f"**{title}**: {held} of {len(of_figure)} hold.\n{listed}")
    return "\n".join(groups)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 118) + "\n"


def _item(text: str) -> str:
    """An item of a Markdown list, in lines of at most 118 characters."""
    return textwrap.fill(text, 118, initial_indent="- ", subsequent_indent="  ") + "\n"


def _table_3(evidence: Evidence) -> str:
    head = (
        "model", "seconds", "CPU seconds", "exact", "points",
        "paper: FT-LDP", "paper: no multi-thread",
    )  # fmt: skip
    return _table(head, _searches(evidence)) + (
        "\nFrom the graph in memory to the frontier: configurations, costs and search. The paper's "
        "seconds are on 48 cores.\n"
    )


def _searches(evidence: Evidence) -> Iterator[tuple[str, ...]]:
    for task in searches():
        result = evidence.get(task)
        if result is None:
            continue
        paper = PAPER_SECONDS.get(task.model)
        yield (
            TITLES[task.model],
            f"{result.seconds:.2f}",
            f"{result.cpu_seconds:.2f}",
            result.exactness,
            str(len(result.nanoseconds)),
            *(("", "") if paper is None else (f"{paper[0]:,g}", f"{paper[1]:,g}")),
        )


def _exactness(evidence: Evidence) -> str:
    rows = [_span(result) for task in all_tasks() if (result := evidence.get(task)) is not None]
    head = ("model", "cluster", "devices", "solver", "points", "memory (GB)", "time (s)", "exact")
    return _table(head, rows)


def _span(result: Result) -> tuple[str, ...]:
    task = result.task
    memory = [f"{bytes_ / 2**30:.4g}" for bytes_ in result.memory_bytes[[0, -1]]]
    time = [f"{nanoseconds / 1e9:.4g}" for nanoseconds in result.nanoseconds[[0, -1]]]
    return (
        task.model,
        task.cluster,
        str(task.devices),
        task.algorithm
        + (", reuse" if task.reuse else "")
        + (", sharded storage" if task.sharded_storage else "")
        + (", layers" if task.layers else ""),
        str(len(result.nanoseconds)),
        *(ends[0] if ends[0] == ends[1] else " to ".join(ends) for ends in (memory, time)),
        result.exactness,
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)
