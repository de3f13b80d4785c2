"""Figures, colours and axes that all pictures share."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tensoropt.errors import OptionError

if TYPE_CHECKING:  # imported where a picture is drawn
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "COLOURS",
    "GREY",
    "KINDS",
    "log_if_wide",
    "new_figure",
    "save",
    "shortened",
    "text_colour",
]

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#8c6bb1")
"""Colours that stay apart for most people with a colour deficiency (Okabe and Ito 2008)."""
GREY = "#9a9a9a"
KINDS = (".png", ".svg", ".pdf")
"""Endings of the files that pictures are written to."""

_WIDE = 5
"""The ratio of the largest to the smallest value from which an axis is logarithmic."""
_DECADES = 100
"""The ratio below which ticks between powers of ten have numbers, too."""
_DARK = ("#0072b2", "#009e73", "#d55e00", "#8c6bb1")
_DOTS_PER_INCH = 150


def new_figure(width: float, height: float) -> Figure:
    """A figure of a size in inches, without a window.

    Raises:
        OptionError: if Matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise OptionError(
            "a picture needs Matplotlib. Got no module of this name; install it with "
            "pip install 'tensoropt[plots]'."
        ) from error
    return Figure(figsize=(width, height), layout="constrained")


def save(figure: Figure, file: str | Path) -> None:
    """Write a figure to a file.

    Raises:
        OptionError: if the file's ending is none of `KINDS`.
        OSError: if the file cannot be written.
    """
    path = Path(file)
    if path.suffix.lower() not in KINDS:
        raise OptionError(
            f"a picture's file ends with {', '.join(KINDS)}. Got {str(file)!r}; change its ending."
        )
    from matplotlib import rc_context

    # Names in a file are random without a salt. Text is text, which can be searched, not outlines.
    with rc_context({"svg.hashsalt": "tensoropt", "svg.fonttype": "none"}):
        figure.savefig(path, dpi=_DOTS_PER_INCH, metadata=_UNDATED[path.suffix.lower()])


_UNDATED: dict[str, dict[str, str | None]] = {
    ".png": {},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None},
}
"""Metadata that leaves out the time, so that equal pictures are equal files."""


def log_if_wide(axes: Axes, x: Sequence[float] = (), y: Sequence[float] = ()) -> None:
    """Make an axis logarithmic, with plain numbers, if its values span more than a factor."""
    from matplotlib.ticker import FuncFormatter

    for values, set_scale, axis in (
        (x, axes.set_xscale, axes.xaxis),
        (y, axes.set_yscale, axes.yaxis),
    ):
        if values and min(values) > 0 and max(values) >= _WIDE * min(values):
            set_scale("log")
            few = max(values) < _DECADES * min(values)
            axis.set_major_formatter(FuncFormatter(_plain))
            axis.set_minor_formatter(FuncFormatter(_of_first_digits if few else _none))


def _plain(value: float, _: object) -> str:
    return f"{value:,g}"


def _of_first_digits(value: float, _: object) -> str:
    """The text of a tick between powers of ten, for some of them."""
    return f"{value:,g}" if f"{value:e}"[0] in "25" else ""


def _none(*_: object) -> str:
    return ""


def text_colour(background: str) -> str:
    """White on dark colours, black on others."""
    return "white" if background in _DARK else "black"


def shortened(name: str, most: int = 44) -> str:
    """A name with dots in place of its beginning if it is long: ends of names tell layers apart."""
    return name if len(name) <= most else f"...{name[-most + 3 :]}"
