"""The text of Chart.js, from the Python package that has it."""

from __future__ import annotations

from importlib import metadata, resources

from tensoropt.errors import OptionError

__all__ = ["chart_library"]

_PACKAGE = "chartkick"
_FILE = "django/static/chartkick/Chart.bundle.js"


def chart_library() -> str:
    """Return the text of Chart.js, which a page contains.

    Raises:
        OptionError: the package is not installed, or lacks the file.
    """
    try:
        file = resources.files(_PACKAGE).joinpath(_FILE)
    except ModuleNotFoundError:
        file = None
    if file is None:
        raise _missing("no such package")
    if not file.is_file():
        raise _missing(f"version {metadata.version(_PACKAGE)}, which has no {_FILE}")
    return file.read_text(encoding="utf-8")


def _missing(found: str) -> OptionError:
    return OptionError(
        f"a page contains Chart.js, from the Python package {_PACKAGE}. Got {found}; run "
        "pip install 'tensoropt[page]'."
    )
