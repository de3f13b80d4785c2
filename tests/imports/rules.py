"""The house rules about imports, read off the syntax tree of a file.

Stages import one way, TensorFlow and MPI are kept to a few places, nothing pickles, and every
module says what it exports. An import inside a function, a relative one, ``from tensoropt import
search`` and ``importlib.import_module("...")`` all count.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

ROOT = Path(__file__).resolve().parents[2]

STAGES = (
    *("graph", "tdl", "parallel", "rewriting", "transformations", "cost", "problem", "search"),
    *("pipeline", "plan", "planner", "execution"),
)
PLANNING = STAGES[:-1]
ROOF = ("frontend", "cli")
GROUND = ("arrays", "errors", "garbage", "json_files", "launched", "tensorflow_private")
PARTS = (*STAGES, *ROOF, "report", *GROUND)

# The part "" is the public namespace, tensoropt/__init__.py, and whatever it exports.
MAY_IMPORT = {stage: {*STAGES[:i], stage, *GROUND} for i, stage in enumerate(STAGES)}
MAY_IMPORT |= {
    "errors": {"errors"},
    "arrays": {"arrays"},
    "garbage": {"garbage"},
    "json_files": {"errors", "json_files"},
    "launched": {"frontend", "launched"},
    "tensorflow_private": {"tensorflow_private"},
    "report": {*PLANNING, "report", *GROUND},
    "frontend": {*STAGES, "frontend", "report", *GROUND, ""},
    "cli": {*STAGES, "frontend", "cli", "report", *GROUND, ""},
    "": {"frontend", "plan", "errors", "launched", ""},
    "__main__": {"cli"},
}
MAY_IMPORT_COLLECTIVES = {"cost", "execution", "launched", *ROOF}

TENSORFLOW = {"tensorflow", "keras", "tf_keras", "horovod"}
TENSORFLOW_FILES = (
    "collectives/*",
    "tensoropt/cost/measure*.py",
    "tensoropt/execution/*",
    "tensoropt/frontend/*",
    "tensoropt/graph/from_tensorflow/*",
    "tensoropt/tensorflow_private.py",
)
PRIVATE_FILE = "tensoropt/tensorflow_private.py"
PRIVATE_MODULES = {"core", "python", "compiler", "lite", "src"}
# Folders of a part, and modules beside them, import one way, too; a folder has few modules.
FOLDERS = {
    "frontend": (
        "job",
        "tensorflow_api",
        "inputs",
        "measuring",
        "planning",
        "session",
        "definitions",
        "steps",
        "saving",
        "keras_models",
    ),
    "search": (
        "limits",
        "threads",
        "elimination_queue",
        "joint_slots",
        "pareto",
        "like_subgraphs",
        "outcome",
        "compilation",
        "watch",
        "flat",
        "bounds",
        "scalar",
        "exact",
        "branching",
        "supported",
        "approximate",
        "baselines",
        "multilevel",
        "find",
        "solvers",
        "random_strategies",
    ),
    "planner": (
        "operator_kinds",
        "meshes",
        "request",
        "optional_space",
        "operators_to_measure",
        "split_check",
        "prices",
        "searches",
        "notes",
        "plans",
        "offers",
        "spaces",
        "market",
        "infeasible",
        "choose",
        "plans_instead",
        "kernels",
    ),
    "execution": (
        "native",
        "world",
        "agreement",
        "gradients",
        "edges",
        "rules",
        "lowering",
        "passes",
        "checkpoints",
        "stages",
        "runtime",
    ),
    "transformations": ("rewritten", "microbatches", "staged"),
    "pipeline": (
        "batch_growth",
        "atomic",
        "blocks",
        "links",
        "stages",
        "atom_costs",
        "ranges",
        "sent",
        "profile",
        "like_stages",
        "split",
        "branches",
    ),
}
MOST_MODULES = 12  # of a folder
MPI_FILE = "collectives/transport/mpi.py"
HOROVOD_FILE = "collectives/horovod/module.py"
PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the repository's root and its text."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def part(self) -> str:
        """The part of tensoropt that it belongs to; "" for the public namespace."""
        name = PurePosixPath(self.path).parts[1]
        return "" if name == "__init__.py" else name.removesuffix(".py")

    @property
    def folder(self) -> str:
        """The folder of its part that it is in, or its own name; "" for the part's namespace."""
        name = PurePosixPath(self.path).parts[2:3]
        return "" if name in ((), ("__init__.py",)) else name[0].removesuffix(".py")

    def is_in(self, package: str) -> bool:
        return PurePosixPath(self.path).parts[0] == package


def sources(*folders: str) -> list[Source]:
    return [source for folder in folders for source in _sources(folder)]


@cache
def _sources(folder: str) -> list[Source]:
    files = sorted((ROOT / folder).rglob("*.py"))
    return [Source(f.relative_to(ROOT).as_posix(), f.read_text("utf-8")) for f in files]


@cache
def imports(source: Source) -> list[tuple[int, str]]:
    """Line and absolute dotted name of everything that a file imports, at whatever depth.

    ``from a import b`` gives ``a.b``, which may be a module or a name in one: a rule about
    packages need not tell which. ``import a`` also gives the ``a.b.c`` that the file then uses.
    """
    found: list[tuple[int, str]] = []
    whole: set[str] = set()  # Packages bound under their own name by `import a` or `import a.b`.
    attributes: list[ast.Attribute] = []
    for node in ast.walk(source.tree):
        match node:
            case ast.Import():
                found += [(node.lineno, alias.name) for alias in node.names]
                whole |= {a.name.partition(".")[0] for a in node.names if a.asname is None}
            case ast.ImportFrom():
                base = _absolute(source, node.level, node.module or "")
                found += [(node.lineno, f"{base}.{alias.name}") for alias in node.names]
            case ast.Call(args=[ast.Constant(value=str(name)), *_]):
                if _callee(node) in ("import_module", "__import__"):
                    stripped = name.lstrip(".")
                    absolute = _absolute(source, len(name) - len(stripped), stripped)
                    found.append((node.lineno, absolute))
            case ast.Attribute():
                attributes.append(node)
    dotted = ((node.lineno, _dotted(node)) for node in attributes)
    return found + [(line, name) for line, name in dotted if name.partition(".")[0] in whole]


def _dotted(node: ast.expr) -> str:
    """``a.b.c`` for the attribute c of b of the name a; begins with a dot for any other."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=name):
            return f"{_dotted(value)}.{name}"
    return ""


def _absolute(source: Source, level: int, name: str) -> str:
    """The absolute form of a name that ``level`` dots precede; without dots, the name itself."""
    if level == 0:
        return name
    package = PurePosixPath(source.path).parts[:-1]
    return ".".join([*package[: len(package) - level + 1], *([name] if name else [])])


def _callee(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def part_of(name: str) -> str:
    """The part of tensoropt that a dotted name leads to; "" for what the namespace exports."""
    second = f"{name}.".split(".")[1]
    return second if second in PARTS else ""


# Each rule gives the places where a file breaks it.


def breaks_one_way(source: Source) -> Iterator[str]:
    if source.is_in("collectives"):
        for line, name in imports(source):
            if name.partition(".")[0] == "tensoropt":
                yield f"{source.path}:{line}: collectives/ is below tensoropt, but imports {name}"
        return
    if source.part not in MAY_IMPORT:
        yield f"{source.path}:1: {source.part!r} is neither a stage nor the roof; known: {PARTS}"
        return
    for line, name in imports(source):
        top = name.partition(".")[0]
        if top == "tensoropt" and part_of(name) not in MAY_IMPORT[source.part]:
            yield f"{source.path}:{line}: {source.part or 'the namespace'} may not import {name}"
        if top == "collectives" and source.part not in MAY_IMPORT_COLLECTIVES:
            yield f"{source.path}:{line}: {source.part or 'the namespace'} may not import {name}"


def breaks_folders(source: Source) -> Iterator[str]:
    part, folder = source.part, source.folder
    folders = FOLDERS.get(part, ())
    if not folders or not folder:
        return
    if folder not in folders:
        yield f"{source.path}:1: {folder!r} is not in {part}; known: {folders}"
        return
    later = {f"tensoropt.{part}.{each}." for each in folders[folders.index(folder) + 1 :]}
    for line, name in imports(source):
        if f"{name}.".startswith((*later,)):
            yield f"{source.path}:{line}: {part}/{folder} may not import {name}"


def breaks_certificates(source: Source) -> Iterator[str]:
    for line, name in imports(source):
        if name.partition(".")[0] == "benchmarks":
            yield f"{source.path}:{line}: imports {name}; nothing shipped imports a benchmark"


def breaks_tensorflow(source: Source) -> Iterator[str]:
    if any(matches(source.path, pattern) for pattern in TENSORFLOW_FILES):
        return
    for line, name in imports(source):
        if name.partition(".")[0] in TENSORFLOW or name.startswith("tensoropt.tensorflow_private"):
            yield f"{source.path}:{line}: imports {name}; TensorFlow is for {TENSORFLOW_FILES}"


def breaks_private(source: Source) -> Iterator[str]:
    for line, name in imports(source):
        top, _, rest = name.partition(".")
        private = top in TENSORFLOW and rest.partition(".")[0] in PRIVATE_MODULES
        if private and source.path != PRIVATE_FILE:
            yield f"{source.path}:{line}: imports {name}; that is for {PRIVATE_FILE} alone"


def matches(path: str, pattern: str) -> bool:
    if pattern.endswith("/*"):
        return path.startswith(pattern[:-1])
    return PurePosixPath(path).match(pattern)


def breaks_mpi(source: Source) -> Iterator[str]:
    for line, name in imports(source):
        if name.partition(".")[0] == "mpi4py" and source.path != MPI_FILE:
            yield f"{source.path}:{line}: imports {name}; mpi4py is for {MPI_FILE} alone"


def breaks_horovod(source: Source) -> Iterator[str]:
    for line, name in imports(source):
        if name.partition(".")[0] == "horovod" and source.path != HOROVOD_FILE:
            yield f"{source.path}:{line}: imports {name}; Horovod is for {HOROVOD_FILE} alone"


def breaks_pickle(source: Source) -> Iterator[str]:
    for line, name in imports(source):
        if PICKLES & set(name.split(".")):
            yield f"{source.path}:{line}: imports {name}; nothing here pickles"
    for node in ast.walk(source.tree):
        match node:
            case ast.keyword(arg="allow_pickle", value=value):
                if not (isinstance(value, ast.Constant) and value.value is False):
                    yield f"{source.path}:{value.lineno}: allow_pickle; nothing here pickles"


def breaks_all(source: Source) -> Iterator[str]:
    body = source.tree.body
    if source.path.endswith("__main__.py") or not any(map(_is_code, body)):
        return
    if not any(_assigns_all(statement) for statement in body):
        yield f"{source.path}:1: has no __all__"


def _is_code(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Constant(value=str())):
            return False
        case ast.ImportFrom(module="__future__"):
            return False
    return True


def _assigns_all(statement: ast.stmt) -> bool:
    match statement:
        case ast.Assign(targets=targets):
            return any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets)
        case ast.AnnAssign(target=ast.Name(id="__all__"), value=value):
            return value is not None
    return False


def full_folders(paths: Iterable[str]) -> list[str]:
    """Folders with more modules than a reader takes in at once."""
    count: Counter[tuple[str, ...]] = Counter()
    for path in map(PurePosixPath, paths):
        if path.parts[1] in FOLDERS and path.name != "__init__.py":
            count[path.parts[1:3]] += 1
    return [
        f"{'/'.join(folder)}: {modules} modules, at most {MOST_MODULES}"
        for folder, modules in count.items()
        if modules > MOST_MODULES
    ]


Rule = Callable[[Source], Iterator[str]]
PACKAGES = ("tensoropt", "collectives")
EVERYTHING = (*PACKAGES, "examples", "benchmarks", "tests")
