"""A plan as one HTML file that needs no network."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping
from importlib import metadata, resources
from typing import Any

from tensoropt.plan import Plan
from tensoropt.report.page.chart_library import chart_library
from tensoropt.view import PlanView, view_of

__all__ = ["page_data", "page_of"]

_SCRIPTS = (
    "elements",
    "charts",
    "overview",
    "frontier",
    "point",
    "layers",
    "communication",
    "timeline",
    "memory",
    "main",
)
"""The page's own scripts in their order."""


def page_of(
    plan: Plan, points: Mapping[int, Plan] | None = None, view: PlanView | None = None
) -> str:
    """Return the page of a plan: its frontier, layers, communication, timeline and memory.

    Styles, scripts, Chart.js and the data are in the file, so nothing is loaded when it is opened.

    Args:
        plan: the plan.
        points: plans of points of its frontier, by number. A click on another point shows its
            numbers, and the command that plans it.
        view: the plan's view, if it is there already.

    Raises:
        OptionError: Chart.js is not installed.
    """
    parts = {
        "title": html.escape(f"TensorOpt plan on {plan.cluster}"),
        "style": _text("page.css"),
        "charts": chart_library(),
        "scripts": "\n".join(_text(f"{name}.js") for name in _SCRIPTS),
        "data": _as_script(page_data(plan, view or view_of(plan), points or {})),
    }
    # All at once: the text of a part may look like the place of another.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _text("page.html"))


def page_data(plan: Plan, view: PlanView, points: Mapping[int, Plan]) -> dict[str, Any]:
    """Return the data of a page as JSON values.

    Args:
        plan: the plan.
        view: its view.
        points: plans of points of its frontier, by number.

    Returns:
        ``view`` is the `PlanView`. ``operators`` has the plan's operators in columns, whose types
        and maps are positions in ``texts``. ``points`` has the layers of other points.
    """
    texts: dict[str, int] = {}

    def position(text: str) -> int:
        return texts.setdefault(text, len(texts))

    operators = {
        "name": [operator.name for operator in plan.operators],
        "type": [position(operator.type) for operator in plan.operators],
        "maps": [
            position(" ".join([operator.mesh, *operator.inputs, "→", operator.output]))
            for operator in plan.operators
        ],
        "nanoseconds": [operator.time_nanoseconds for operator in plan.operators],
        "bytes": [operator.memory_bytes for operator in plan.operators],
    }
    return {
        "view": view.to_json(),
        "operators": operators,
        "texts": list(texts),
        "points": [
            {
                "number": number,
                "layers": [
                    {"name": row.name, "names": row.names, "words": row.words}
                    for row in view_of(point).layers
                ],
            }
            for number, point in sorted(points.items())
        ],
        "footer": f"Made by TensorOpt {metadata.version('tensoropt')}. Times and sizes are "
        "predicted, unless they are called measured. Chart.js draws the charts (MIT licence).",
    }


def _text(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _as_script(values: Any) -> str:
    """Return JSON that no name can end: HTML reads ``</script>`` even inside a text."""
    return json.dumps(values, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")
