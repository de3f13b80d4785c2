"""A plan's summary as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tensoropt.report.views.layers import layer_columns
from tensoropt.report.views.summary import COSTLIEST, summary_lines
from tensoropt.view import PlanView

__all__ = ["html_summary"]


def html_summary(view: PlanView) -> str:
    """The sentence of the plan, its costs by cause, and its costliest layers as a table."""
    facts = "".join(
        f"<tr><th style='text-align:left'>{escape(title)}</th>"
        f"<td style='text-align:left'>{escape(text)}</td></tr>"
        for title, text in summary_lines(view)
    )
    header, rows, right = layer_columns(view, view.costliest(COSTLIEST))
    head = "".join(
        _cell("th", title, to_right) for title, to_right in zip(header, right, strict=True)
    )
    body = "".join(_row(row, right) for row in rows)
    return (
        f"<div><p><b>{escape(view.summary.sentence)}</b></p><table>{facts}</table>"
        f"<p>the costliest of {len(view.layers)} rows of layers</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(cells: Sequence[str], right: Sequence[bool]) -> str:
    return f"<tr>{''.join(_cell('td', text, r) for text, r in zip(cells, right, strict=True))}</tr>"


def _cell(tag: str, text: str, to_right: bool) -> str:
    side = "right" if to_right else "left"
    return f"<{tag} style='text-align:{side}'>{escape(text)}</{tag}>"
