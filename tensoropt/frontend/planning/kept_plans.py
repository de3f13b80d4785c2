"""Kept plans: a start uses the plan of an earlier start again for the same step.

The name of a plan's file is a digest of everything that the plan depends on: the step, the machines
and their measured profile, the options, and the versions of TensorOpt and TensorFlow. A change of
any of them gives another name. If a file is damaged, or has a plan for another request, the step is
planned again and the file replaced. The plan's frontier is in a file beside it, so that each point
can be chosen without a search.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import tensorflow as tf

import collectives
import tensoropt
from collectives.native.transport import SWITCH
from tensoropt.errors import LayoutError, PlanError
from tensoropt.json_files import read_json, write_json
from tensoropt.plan import Plan
from tensoropt.plan.plan import FEWER_DEVICES
from tensoropt.planner.request import Request
from tensoropt.quiet.standard_error import write_note
from tensoropt.tdl import described, lookup

if TYPE_CHECKING:
    from tensoropt.planner.offers.kept_frontier import KeptFrontier

__all__ = ["PLANS_VARIABLE", "KeptPlan", "Search", "script_descriptions"]

_T = TypeVar("_T")
Search = Callable[[], tuple[Plan, Mapping[str, Any]]]
"""A search, which returns a plan and the values of its frontier."""

PLANS_VARIABLE = "TENSOROPT_PLANS"
"""Environment variable: the folder of kept plans, by default in the user's cache; ``none`` neither
keeps plans nor uses kept ones."""

_NONE = "none"
_MOST_FILES, _MOST_BYTES = 400, 50 * 2**20
"""Above either limit, the least recently used files are removed: plans and their frontiers."""
_MOST_FRONTIER_BYTES = 10 * 2**20
"""A larger frontier is not kept, because it would displace too many plans."""
_FRONTIER = "a kept frontier is a whole, readable JSON file"
_FRONTIER_REMEDY = "It is searched again."
_NOT_VALUES = frozenset({"cluster_at", "cut", "dry_run_peak", "graph", "profile_at"})
_NOT_VALUES |= {"pins", "results", "stage_peak", "steps"}
"""Arguments of a request that the key contains in another form, or that change no plan."""
_ENVIRONMENT = (SWITCH, "TF_ENABLE_ONEDNN_OPTS")
"""Environment variables that select a step's kernels, and thereby its peak memory."""


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """The file that keeps the plan of a request. Only one rank uses it.

    Attributes:
        path: path of the file; None if plans are not kept.
        request: the step and the limits of the search.
        option: the option of `find_strategy`.
    """

    path: Path | None
    request: Request
    option: str

    @classmethod
    def of(cls, request: Request, option: str, transport: str) -> KeptPlan:
        """The kept plan of a request in a job with this transport of collectives."""
        folder = _folder()
        path = None if folder is None else folder / f"{_key(request, option, transport)}.json"
        return cls(path, request, option)

    def read(self) -> Plan | None:
        """The plan of an earlier start, if there is one for this request."""
        path, request = self.path, self.request
        if path is None:
            return None
        try:
            if not path.exists():
                return None
            modified = path.stat().st_mtime
            plan = Plan.load(path)
        except (OSError, PlanError) as error:
            _say(f"a kept plan is not used: {error}")
            return None
        planned = plan.option, plan.graph_digest, plan.roots, plan.algorithm
        if planned != (self.option, request.graph_digest, request.roots, request.algorithm):
            _say(f"a kept plan is not used: {path} has that of another step")
            return None
        _used(path)
        description = request.cluster_at(plan.devices).description
        plan = replace(plan, cluster=replace(plan.cluster, description=description))
        write_note(
            f"plan of {date.fromtimestamp(modified).isoformat()} used again "
            f"({PLANS_VARIABLE}={_NONE} plans anew)"
        )
        return plan

    @property
    def frontier_path(self) -> Path | None:
        """The file of the plan's frontier."""
        return None if self.path is None else self.path.with_suffix(".frontier.json")

    def is_kept(self, point: int | str | None) -> bool:
        """Whether a start finds its plan, or the frontier of a point that it asks for."""
        path = self.path if point is None else self.frontier_path
        return path is not None and path.exists()

    def of_point(self, point: int | str, search: Search) -> Plan:
        """The plan of a point of the frontier.

        Args:
            point: the point, see `PlanningOptions.point`.
            search: see `from_frontier`.

        Raises:
            OptionError: the frontier has no such point.
            InfeasibleError: the point does not fit the memory limit.
        """
        return self.from_frontier(
            lambda frontier: frontier.plan_of(self.request, self.option, point), search
        )

    def from_frontier(self, take: Callable[[KeptFrontier], _T], search: Search) -> _T:
        """Return the result of a function of the frontier, which is read from its file or searched.

        Args:
            take: the function.
            search: a function that returns a plan and its frontier, called if none is kept.
        """
        # Imported here because it loads the search, which a start with a kept plan avoids.
        from tensoropt.planner.offers.kept_frontier import KeptFrontier

        path = self.frontier_path
        try:
            if path is not None and path.exists():
                frontier = KeptFrontier.from_json(
                    read_json(path, _FRONTIER, _FRONTIER_REMEDY), str(path)
                )
                _used(path)
                return take(frontier)
        except (OSError, PlanError) as error:
            _say(f"a kept frontier is not used: {error}")
        return take(KeptFrontier.from_json(search()[1]))

    def write(self, plan: Plan, frontier: Mapping[str, Any] | None = None) -> None:
        """Keep a plan and its frontier, and remove files above the limits."""
        if self.path is None or self.frontier_path is None:
            return
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if frontier is not None:
                write_json(self.frontier_path, frontier)
                if self.frontier_path.stat().st_size > _MOST_FRONTIER_BYTES:
                    self.frontier_path.unlink()
            write_json(self.path, plan.to_json())
            _remove_oldest(self.path.parent)
        except OSError as error:
            _say(f"the plan is not kept for the next start: {error}")


def _folder() -> Path | None:
    named = os.environ.get(PLANS_VARIABLE)
    if named == _NONE:
        return None
    if named:
        return Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(cache) / "tensoropt" / "plans" if os.path.isabs(cache) else None  # no home


def _key(request: Request, option: str, transport: str) -> str:
    """A digest of everything that a plan depends on."""
    # The other fields are what the request has built, which follows from its arguments.
    values = {item.name: getattr(request, item.name) for item in fields(request) if item.init}
    known = {name: value for name, value in values.items() if name not in _NOT_VALUES}
    fewest = 1 if option in FEWER_DEVICES else request.devices
    known |= {
        "option": option,
        "pins": [str(word) for word in request.pins.words],
        "graph": request.graph_digest,
        "microbatches": request.microbatches,
        # The number of digits: a plan also serves somewhat more or fewer steps.
        "steps": None if request.steps is None else len(str(request.steps)),
        "dry_runs": request.dry_run_peak is not None,
        "clusters": [_surroundings(request, n) for n in range(fewest, request.devices + 1)],
        "transport": transport,
        "environment": [os.environ.get(name) for name in _ENVIRONMENT],
        "descriptions": script_descriptions(),
        "versions": [tensoropt.__version__, _code_digest(), tf.__version__],
    }
    text = json.dumps(known, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def script_descriptions() -> dict[str, str]:
    """The source text of descriptions that the script registered (`tensoropt.describe`)."""
    functions = {op_type: lookup(op_type).function for op_type in described()}
    return {
        op_type: _source(function)
        for op_type, function in functions.items()
        if not function.__module__.startswith("tensoropt.")
    }


def _source(function: Callable[..., Any]) -> str:
    """The source text of a function; typed into an interpreter it has only its code."""
    try:
        return inspect.getsource(function)
    except OSError:
        return repr((function.__code__.co_code, function.__code__.co_consts))


def _surroundings(request: Request, devices: int) -> Any:
    """The cluster and profile of a number of devices; None if the cluster cannot give them.

    The cluster's description, which names machines, changes no plan.
    """
    try:
        cluster, profile = request.cluster_at(devices), request.profile_at(devices)
    except LayoutError:
        return None
    return replace(cluster, description="").to_json(), profile and profile.to_json()


def _plain(value: Any) -> Any:
    """A value in a form that JSON can represent."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return dict(value) if isinstance(value, Mapping) else sorted(value)


@functools.cache
def _code_digest() -> str:
    """A digest of the code of this package and of ``collectives``."""
    digest = hashlib.sha256()
    for package in (tensoropt, collectives):
        folder = Path(package.__file__ or "").parent
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".json", ".cc", ".h"):
                digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _used(path: Path) -> None:
    """Set the access time of a file; the least recently used files are removed first."""
    with suppress(OSError):
        os.utime(path, (time.time(), path.stat().st_mtime))


def _remove_oldest(folder: Path) -> None:
    """Remove the least recently used files above `_MOST_FILES` or `_MOST_BYTES`."""
    files = []
    for path in folder.glob("*.json"):
        with suppress(FileNotFoundError):  # another process has removed it
            files.append((path.stat().st_atime, path.stat().st_size, path))
    total = 0
    for number, (_, size, path) in enumerate(sorted(files, reverse=True)):
        total += size
        if number >= _MOST_FILES or total > _MOST_BYTES:
            path.unlink(missing_ok=True)


def _say(line: str) -> None:
    sys.stderr.write(f"tensoropt: {line}\n")
