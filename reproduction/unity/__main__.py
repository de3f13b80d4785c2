"""``python -m reproduction.unity``: Unity's evaluation (sections 6.2, 6.4) on a simulated Summit.

Each model of Table 1 is planned on 6 to 192 devices: data parallelism, an expert's strategy,
TASO's graph in data parallelism and with FlexFlow's strategy, rewriting followed by parallelizing,
and the plan of `find_strategy`. All times are predicted steps of plans on a described cluster, and
fit 16 GB a device. Figure 14 is judged without stages, as Unity compares itself. BERT-Large is also
planned with growing sets of dimensions in which products may be split (Figure 15a). With
``--results``, results in that file are not searched again. The last line is one JSON object.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from reproduction.unity.ablation import DIMENSIONS, figure_15a
from reproduction.unity.claims import claims
from reproduction.unity.figure2 import figure_2
from reproduction.unity.figure10 import figure_10
from reproduction.unity.models import MODELS
from reproduction.unity.systems import find
from tensoropt.report.text_table import table
from tensoropt.transformations.rewritten.application import substitutions_by_name
from tensoropt.transformations.rewritten.moves import applicable
from tools.rewriting.coverage import Covered, cover

__all__: list[str] = []

DEVICES = (6, 12, 24, 48, 96, 192)
_SYSTEMS = (
    "data_parallel",
    "expert",
    "taso",
    "taso_flexflow",
    "rewritten_first",
    "ours",
    "without_stages",
)


def main() -> None:
    """Search, print the results, and end with the JSON line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--devices", nargs="+", type=int, default=list(DEVICES))
    parser.add_argument("--search-seconds", type=float, default=30.0, help="of CPU")
    parser.add_argument("--links", type=float, default=1.0, help="factor of links' bandwidth")
    alone = "Figure 15a alone, without plans"
    parser.add_argument("--figure-15a", action="store_true", help=alone)
    parser.add_argument("--results", type=Path, help="JSON file that keeps what was found")
    options = parser.parse_args()
    if options.results is not None and options.links != 1:
        name = f"{options.results.stem}-links-{options.links:g}"
        options.results = options.results.with_stem(name)
    kept: dict[str, Any] = {}
    if options.results is not None and options.results.exists():
        kept = json.loads(options.results.read_text())
    for model in () if options.figure_15a else options.models:
        for devices in options.devices:
            key = f"{model} {devices}"
            if key not in kept:
                found = find(model, devices, options.search_seconds, options.links)
                kept[key] = found.to_json()
                if options.results is not None:
                    options.results.write_text(json.dumps(kept, indent=1))
            print(key, kept[key], flush=True)
    for devices in options.devices if "bert_large" in options.models else ():
        key = f"figure 15a {devices}"
        if key not in kept:
            kept[key] = figure_15a(devices, links=options.links)
            if options.results is not None:
                options.results.write_text(json.dumps(kept, indent=1))
    if not options.figure_15a:
        kept["figure 2"], kept["figure 10"] = figure_2(), figure_10()
    print(_table(kept))
    print(_figure_15a(kept))
    judged = claims(kept)
    for claim in judged:
        print("holds" if claim["holds"] else "FAILS", claim["claim"], claim["found"], sep="; ")
    seconds = {key: of["search_seconds"] for key, of in kept.items() if "search_seconds" in of}
    print(
        json.dumps(
            {
                "claims": judged,
                "substitutions": _counts(),
                "search_seconds": seconds,
                "figure_2": kept.get("figure 2"),
                "figure_10": kept.get("figure 10"),
                "links": options.links,
                "figure_15a": {key: of for key, of in kept.items() if key.startswith("figure 15a")},
            }
        )
    )


def _counts() -> dict[str, int]:
    known = list(substitutions_by_name().values())
    kinds = {kind: sum(each.kind == kind for each in known) for kind in
             ("algebraic", "parallel", "hybrid")}  # fmt: skip
    only_parallel = [each for each in known if each.kind == "parallel"]
    covered = sum(isinstance(cover(each), Covered) for each in only_parallel)
    usable = len(applicable(known))
    return {"verified": len(known), **kinds, "covered": covered, "of logical graphs": usable}


def _figure_15a(kept: dict[str, Any]) -> str:
    rows = [
        [key.split()[-1], *(f"{next(iter(of.values())) / time:.3f}" for time in of.values())]
        for key, of in kept.items()
        if key.startswith("figure 15a")
    ]
    header = ["devices", *DIMENSIONS, "pipeline"]
    right = [True] * len(header)
    return f"Figure 15a, throughput by dimensions:\n{table(header, rows, right)}"


def _table(kept: dict[str, Any]) -> str:
    rows = []
    for key, of in kept.items():
        if "search_seconds" not in of:
            continue
        times = [of.get(system) for system in _SYSTEMS]
        rows.append(
            [
                *key.split(),
                *("" if time is None else f"{time * 1e3:.2f}" for time in times),
                f"{of['search_seconds']:.0f}",
                ", ".join([of["way"], *of["substitutions"]]),
            ]
        )
    header = ["model", "devices", *_SYSTEMS, "search s", "ours runs"]
    return str(table(header, rows, [False, *[True] * 9, False]))


if __name__ == "__main__":
    main()
