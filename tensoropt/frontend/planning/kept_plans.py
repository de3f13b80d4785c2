"""Kept plans: what an earlier start has planned is used again for the same step.

A plan's file is named by a digest of everything that the plan follows from: the step, the machines
and their measured profile, the options, and the versions of TensorOpt and TensorFlow. Whatever
changes one of them names another file. A file that is damaged, or has a plan for another request,
is planned anew and replaced. Beside a plan lies the frontier that it was chosen from, each of whose
points can be taken without a search.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, is_dataclass
from datetime import date
from pathlib import Path
from typing import Any

import tensorflow as tf

import collectives
import tensoropt
from collectives.native.transport import SWITCH
from tensoropt.errors import LayoutError, PlanError
from tensoropt.json_files import read_json, write_json
from tensoropt.plan import Plan
from tensoropt.plan.plan import FEWER_DEVICES
from tensoropt.planner.request import Request

__all__ = ["PLANS_VARIABLE", "KeptPlan"]

PLANS_VARIABLE = "TENSOROPT_PLANS"
"""Environment variable: the folder of kept plans, by default in the user's cache; ``none`` for no
plans that are kept or used again."""

_NONE = "none"
_MOST_FILES, _MOST_BYTES = 400, 50 * 2**20
"""Beyond either, the files that were used longest ago are removed: plans and their frontiers."""
_MOST_FRONTIER_BYTES = 10 * 2**20
"""A larger frontier is not kept, so that it takes the place of few plans."""
_FRONTIER = "a kept frontier is a whole, readable JSON file"
_FRONTIER_REMEDY = "It is searched again."
_NOT_VALUES = frozenset({"cluster_at", "cut", "dry_run_peak", "graph", "profile_at"})
_NOT_VALUES |= {"stage_peak", "steps"}
"""Fields of a request that the key has in another form."""
_ENVIRONMENT = (SWITCH, "TF_ENABLE_ONEDNN_OPTS")
"""Variables that decide which kernels a step has, and so its peak of memory."""


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """Where the plan of a request is kept; for one rank to use.

    Attributes:
        path: of its file; None where plans are not kept.
        request: the step and how to search.
        option: of `find_strategy`.
    """

    path: Path | None
    request: Request
    option: str

    @classmethod
    def of(cls, request: Request, option: str, transport: str) -> KeptPlan:
        """Of a request in a job whose collectives something carries."""
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
            made = path.stat().st_mtime
            plan = Plan.load(path)
        except (OSError, PlanError) as error:
            _say(f"a kept plan is not used: {error}")
            return None
        planned = plan.option, plan.graph_digest, plan.roots, plan.algorithm
        if planned != (self.option, request.graph_digest, request.roots, request.algorithm):
            _say(f"a kept plan is not used: {path} has that of another step")
            return None
        _used(path)
        _say(
            f"plan of {date.fromtimestamp(made).isoformat()} used again "
            f"({PLANS_VARIABLE}={_NONE} plans anew)"
        )
        return plan

    @property
    def frontier_path(self) -> Path | None:
        """The file of the plan's frontier."""
        return None if self.path is None else self.path.with_suffix(".frontier.json")

    def of_point(self, point: int, search: Callable[[], tuple[Plan, Mapping[str, Any]]]) -> Plan:
        """The plan of a point of the frontier that an earlier start has found.

        Args:
            point: its number.
            search: finds the plan and the frontier, where none is kept.

        Raises:
            OptionError: there is no such point.
            InfeasibleError: the point does not fit the memory limit.
        """
        # Not imported above: it loads the search, which a start with a kept plan does without.
        from tensoropt.planner.offers.kept_frontier import KeptFrontier

        path = self.frontier_path
        try:
            if path is not None and path.exists():
                frontier = KeptFrontier.from_json(read_json(path, _FRONTIER, _FRONTIER_REMEDY))
                _used(path)
                return frontier.plan_of(self.request, self.option, point)
        except (OSError, PlanError) as error:
            _say(f"a kept frontier is not used: {error}")
        found = KeptFrontier.from_json(search()[1])
        return found.plan_of(self.request, self.option, point)

    def write(self, plan: Plan, frontier: Mapping[str, Any] | None = None) -> None:
        """Keep a plan, and the frontier of which it is, and remove files beyond the limits."""
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
    """A digest of what a plan follows from."""
    values = {each.name: getattr(request, each.name) for each in fields(request)}
    known = {name: value for name, value in values.items() if name not in _NOT_VALUES}
    fewest = 1 if option in FEWER_DEVICES else request.devices
    known |= {
        "option": option,
        "graph": request.graph_digest,
        "microbatches": request.microbatches,
        # The number of digits: a plan does for somewhat more or fewer steps.
        "steps": None if request.steps is None else len(str(request.steps)),
        "dry_runs": request.dry_run_peak is not None,
        "clusters": [_surroundings(request, n) for n in range(fewest, request.devices + 1)],
        "transport": transport,
        "environment": [os.environ.get(name) for name in _ENVIRONMENT],
        "versions": [tensoropt.__version__, _code_digest(), tf.__version__],
    }
    text = json.dumps(known, sort_keys=True, default=_plain)
    return hashlib.sha256(text.encode()).hexdigest()


def _surroundings(request: Request, devices: int) -> Any:
    """The cluster and the profile of a number of devices; None where the cluster has no such."""
    try:
        cluster, profile = request.cluster_at(devices), request.profile_at(devices)
    except LayoutError:
        return None
    return cluster.to_json(), profile and profile.to_json()


def _plain(value: Any) -> Any:
    """A value as JSON has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return dict(value) if isinstance(value, Mapping) else sorted(value)


@functools.cache
def _code_digest() -> str:
    """Of this package and of the one that carries collectives."""
    digest = hashlib.sha256()
    for package in (tensoropt, collectives):
        folder = Path(package.__file__ or "").parent
        for path in sorted(folder.rglob("*")):
            if path.suffix in (".py", ".json", ".cc", ".h"):
                digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _used(path: Path) -> None:
    """Note that a file was used: those used longest ago are removed first."""
    with suppress(OSError):
        os.utime(path, (time.time(), path.stat().st_mtime))


def _remove_oldest(folder: Path) -> None:
    """Remove the files that were used longest ago, beyond `_MOST_FILES` or `_MOST_BYTES`."""
    known = []
    for path in folder.glob("*.json"):
        with suppress(FileNotFoundError):  # another process has removed it
            known.append((path.stat().st_atime, path.stat().st_size, path))
    total = 0
    for number, (_, size, path) in enumerate(sorted(known, reverse=True)):
        total += size
        if number >= _MOST_FILES or total > _MOST_BYTES:
            path.unlink(missing_ok=True)


def _say(line: str) -> None:
    sys.stderr.write(f"tensoropt: {line}\n")
