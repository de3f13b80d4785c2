"""``tensoropt view``: a plan file as a page in a browser, from this machine."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tensoropt.cli.command import Command, check_folder
from tensoropt.errors import OptionError, TensorOptError
from tensoropt.plan import Plan

if TYPE_CHECKING:
    from tensoropt.view import PlanView

__all__ = ["check_page", "page_server", "view", "write_page"]


@click.command(cls=Command)
@click.argument("file", metavar="PLAN.json", type=click.Path(path_type=Path))
@click.option(
    *("--port", "port"),
    metavar="N",
    type=click.IntRange(0, 65535),
    default=0,
    help="Port of this machine; by default one that is free.",
)
def view(file: Path, port: int) -> None:
    """Serve a plan file as a page to browsers of this machine, until Ctrl-C.

    The page is that of `tensoropt show --html`. A browser that loads it again shows the file as it
    is then.
    """
    _page_of(Plan.load(file))
    with page_server(file, port) as server:
        print(f"{file}: http://127.0.0.1:{server.server_port}/ (Ctrl-C ends)", flush=True)
        with suppress(KeyboardInterrupt):
            server.serve_forever()


def page_server(file: Path, port: int) -> ThreadingHTTPServer:
    """Return a server of a plan's page on the loopback address; it does not serve yet.

    Args:
        file: the plan file.
        port: the port; 0 for any that is free.

    Raises:
        OptionError: the port is in use, or not allowed.
    """
    try:
        return ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, file))
    except OSError as error:
        raise OptionError(
            f"a port of this machine is free. Got --port {port}: {error.strerror}; leave it out, "
            "and one that is free is used."
        ) from error


def write_page(
    plan: Plan,
    file: Path,
    points: Mapping[int, Plan] | None = None,
    view: PlanView | None = None,
) -> str:
    """Write the page of a plan, and return a sentence that says so.

    Args:
        plan: the plan.
        file: the file to write.
        points: plans of points of its frontier, by number.
        view: the plan's view, if it is there already.
    """
    file.write_text(_page_of(plan, points, view), encoding="utf-8")
    return f"page written to {file}"


def check_page(file: Path) -> None:
    """Check that a page can be written, before a long search.

    Raises:
        OptionError: its folder does not exist, or Chart.js is not installed.
    """
    from tensoropt.report.page.chart_library import chart_library

    chart_library()
    check_folder("a page", file, "--html")


def _page_of(
    plan: Plan, points: Mapping[int, Plan] | None = None, view: PlanView | None = None
) -> str:
    """Return a plan's page. The import is local: only pages need the view and its texts."""
    from tensoropt.report.page.page import page_of

    return page_of(plan, points, view)


class _Handler(BaseHTTPRequestHandler):
    """Answers ``GET /`` with the page of a plan file; there is nothing else."""

    def __init__(self, file: Path, *arguments: object) -> None:
        self.file = file
        super().__init__(*arguments)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """Send the page; the error of a file that is no plan any more."""
        if self.path.split("?")[0] != "/":
            self.send_error(404)
            return
        try:
            page = _page_of(Plan.load(self.file)).encode()
        except TensorOptError as error:
            self.send_error(500, explain=str(error))
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(page)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing: the browser shows what it got."""
