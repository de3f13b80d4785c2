"""The house rules about imports, checked on the source of every file.

Stages import one way, TensorFlow and MPI are kept to a few places, nothing pickles, and every
module says what it exports. The rules are read off the syntax tree, so an import inside a function,
a relative one, ``from tensoropt import search`` and ``importlib.import_module("...")`` all count.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent

STAGES = ("graph", "tdl", "parallel", "cost", "problem", "search", "plan", "execution")
PLANNING = STAGES[:-1]
ROOF = ("frontend", "cli")
GROUND = ("arrays", "errors", "tensorflow_private")
PARTS = (*STAGES, *ROOF, "report", *GROUND)

# The part "" is the public namespace, tensoropt/__init__.py, and whatever it exports.
MAY_IMPORT = {stage: {*STAGES[:i], stage, *GROUND} for i, stage in enumerate(STAGES)}
MAY_IMPORT |= {
    "errors": {"errors"},
    "arrays": {"arrays"},
    "tensorflow_private": {"tensorflow_private"},
    "report": {*PLANNING, "report", *GROUND},
    "frontend": {*STAGES, "frontend", "report", *GROUND, ""},
    "cli": {*STAGES, "frontend", "cli", "report", *GROUND, ""},
    "": {"frontend", "plan", "errors", ""},
    "__main__": {"cli"},
}
MAY_IMPORT_COLLECTIVES = {"cost", "execution", *ROOF}

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
    "frontend": ("job", "tensorflow_api", "inputs", "measuring", "planning", "session"),
    "search": (
        "limits",
        "threads",
        "elimination_queue",
        "joint_slots",
        "pareto",
        "like_subgraphs",
        "outcome",
        "watch",
        "bounds",
        "scalar",
        "exact",
        "supported",
        "baselines",
        "multilevel",
        "find",
        "solvers",
        "random_strategies",
    ),
}
MOST_MODULES = 12  # of a folder
MPI_FILE = "collectives/transport/mpi.py"
PICKLES = {"pickle", "_pickle", "cPickle", "cloudpickle", "dill", "joblib", "marshal", "shelve"}


@dataclass(frozen=True)
class Source:
    """One Python file: its path from the repository's root and its text."""

    path: str
    text: str

    @property
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
    files = (file for folder in folders for file in (ROOT / folder).rglob("*.py"))
    return [Source(f.relative_to(ROOT).as_posix(), f.read_text("utf-8")) for f in sorted(files)]


def imports(source: Source) -> Iterator[tuple[int, str]]:
    """Line and absolute dotted name of everything that a file imports, at whatever depth.

    ``from a import b`` gives ``a.b``, which may be a module or a name in one: a rule about
    packages need not tell which. ``import a`` also gives the ``a.b.c`` that the file then uses.
    """
    whole: set[str] = set()  # Packages bound under their own name by `import a` or `import a.b`.
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node.lineno, alias.name
                if alias.asname is None:
                    whole.add(alias.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(source, node.level, node.module or "")
            for alias in node.names:
                yield node.lineno, f"{base}.{alias.name}"
        elif isinstance(node, ast.Call) and _callee(node) in ("import_module", "__import__"):
            match node.args:
                case [ast.Constant(value=str(name)), *_]:
                    stripped = name.lstrip(".")
                    yield node.lineno, _absolute(source, len(name) - len(stripped), stripped)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Attribute):
            dotted = ast.unparse(node)
            if dotted.partition(".")[0] in whole and dotted.replace(".", "").isidentifier():
                yield node.lineno, dotted


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
    if any(_matches(source.path, pattern) for pattern in TENSORFLOW_FILES):
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


def _matches(path: str, pattern: str) -> bool:
    if pattern.endswith("/*"):
        return path.startswith(pattern[:-1])
    return PurePosixPath(path).match(pattern)


def breaks_mpi(source: Source) -> Iterator[str]:
    for line, name in imports(source):
        if name.partition(".")[0] == "mpi4py" and source.path != MPI_FILE:
            yield f"{source.path}:{line}: imports {name}; mpi4py is for {MPI_FILE} alone"


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


@pytest.mark.parametrize(
    ("rule", "folders"),
    [
        (breaks_one_way, PACKAGES),
        (breaks_folders, PACKAGES),
        (breaks_certificates, (*PACKAGES, "examples")),
        (breaks_tensorflow, PACKAGES),
        (breaks_private, (*PACKAGES, "examples", "benchmarks")),
        (breaks_mpi, PACKAGES),
        (breaks_pickle, EVERYTHING),
        (breaks_all, PACKAGES),
    ],
)
def test_the_repository_keeps_the_rule(rule: Rule, folders: tuple[str, ...]) -> None:
    files = sources(*folders)
    assert any(file.is_in("tensoropt") for file in files)
    broken = [place for file in files for place in rule(file)]
    assert not broken, "\n" + "\n".join(broken)


def test_folders_have_few_modules() -> None:
    assert not full_folders(file.path for file in sources("tensoropt"))
    crowd = [f"tensoropt/search/pareto/m{number}.py" for number in range(MOST_MODULES)]
    assert not full_folders([*crowd, "tensoropt/search/pareto/__init__.py"])
    assert full_folders([*crowd, "tensoropt/search/pareto/one_more.py"])


COST, SEARCH = "tensoropt/cost/memory.py", "tensoropt/search/baselines/optcnn.py"
BROKEN = [
    (breaks_one_way, COST, "import tensoropt.search"),
    (breaks_one_way, COST, "import tensoropt.search.pareto.frontier as f"),
    (breaks_one_way, COST, "from tensoropt import search"),
    (breaks_one_way, COST, "from tensoropt import errors, search"),
    (breaks_one_way, COST, "from tensoropt.search import frontier"),
    (breaks_one_way, COST, "from .. import search"),
    (breaks_one_way, COST, "from ..search import frontier"),
    (breaks_one_way, SEARCH, "from ...plan import Plan"),
    (breaks_one_way, SEARCH, "from ... import plan"),
    (breaks_one_way, "tensoropt/cost/__init__.py", "from ..search import frontier"),
    (breaks_one_way, "tensoropt/errors.py", "from . import graph"),
    (breaks_one_way, COST, "def f():\n    from tensoropt.search import frontier"),
    (breaks_one_way, COST, "if TYPE_CHECKING:\n    from tensoropt.search import frontier"),
    (breaks_one_way, COST, "import tensoropt.graph\nx = tensoropt.search.pareto.frontier.merge"),
    (breaks_one_way, COST, "import importlib\nimportlib.import_module('tensoropt.search')"),
    (breaks_one_way, COST, "import_module('..search', __package__)"),
    (breaks_one_way, COST, "import tensoropt"),
    (breaks_one_way, COST, "from tensoropt import *"),
    (breaks_one_way, COST, "from tensoropt import Session"),
    (breaks_one_way, COST, "from tensoropt.frontend import session"),
    (breaks_one_way, COST, "from tensoropt.report import table"),
    (breaks_one_way, COST, "from tensoropt.utilities import helper"),
    (breaks_one_way, "tensoropt/utilities.py", "x = 1"),
    (breaks_one_way, "tensoropt/plan.py", "from tensoropt.execution import world"),
    (breaks_one_way, "tensoropt/report/text_table.py", "from tensoropt.execution import world"),
    (breaks_one_way, "tensoropt/report/text_table.py", "from collectives import group"),
    (breaks_one_way, "tensoropt/frontend/job/job.py", "from tensoropt.cli import main"),
    (breaks_one_way, "tensoropt/__init__.py", "from tensoropt.execution import world"),
    (breaks_one_way, SEARCH, "from collectives.bandwidth import measure"),
    (breaks_one_way, "collectives/group.py", "from tensoropt.errors import TensorOptError"),
    (breaks_one_way, "collectives/transport/mpi.py", "import tensoropt"),
    (breaks_folders, "tensoropt/frontend/job/job.py", "from ..session import session"),
    (breaks_folders, "tensoropt/frontend/job/job.py", "import tensoropt.frontend.planning.shapes"),
    (breaks_folders, "tensoropt/frontend/kitchen/job.py", "x = 1"),
    (breaks_folders, "tensoropt/search/pareto/hull.py", "from ..bounds import message_passing"),
    (breaks_folders, "tensoropt/search/scalar/x.py", "from tensoropt.search import exact"),
    (breaks_folders, "tensoropt/search/exact/x.py", "import tensoropt.search.supported.gaps"),
    (breaks_folders, "tensoropt/search/watch.py", "from .bounds.message_passing import Bounds"),
    (breaks_folders, "tensoropt/search/limits.py", "from tensoropt.search.outcome import Outcome"),
    (breaks_folders, "tensoropt/search/multilevel/x.py", "from tensoropt.search.find import find"),
    (breaks_folders, "tensoropt/search/find.py", "def f():\n    from .solvers import SOLVERS"),
    (breaks_folders, "tensoropt/search/attic.py", "x = 1"),
    (breaks_certificates, SEARCH, "from benchmarks.certificates.checker import Checker"),
    (breaks_certificates, "tensoropt/cli/main.py", "import benchmarks"),
    (breaks_certificates, "collectives/group.py", "import_module('benchmarks.certificates')"),
    (breaks_certificates, "examples/listing1.py", "def f():\n    import benchmarks.paper"),
    (breaks_tensorflow, COST, "import tensorflow as tf"),
    (breaks_tensorflow, COST, "from tensorflow.python.ops import gradients"),
    (breaks_tensorflow, COST, "def f():\n    import tensorflow.compat.v1 as tf"),
    (breaks_tensorflow, "tensoropt/__init__.py", "import_module('tensorflow')"),
    (breaks_tensorflow, "tensoropt/graph/tensor.py", "import keras"),
    (breaks_tensorflow, COST, "from tensoropt.tensorflow_private import ops"),
    (breaks_private, "tensoropt/execution/world.py", "from tensorflow.python.framework import ops"),
    (breaks_private, "collectives/group.py", "import tensorflow as tf, tensorflow.core.framework"),
    (breaks_mpi, "collectives/group.py", "from mpi4py import MPI"),
    (breaks_mpi, "tensoropt/execution/world.py", "def f():\n    import mpi4py.MPI"),
    (breaks_pickle, COST, "import pickle"),
    (breaks_pickle, COST, "from mpi4py.util import pickle"),
    (breaks_pickle, COST, "from joblib import dump"),
    (breaks_pickle, COST, "numpy.load(path, allow_pickle=True)"),
    (breaks_all, COST, '"""Memory."""\nfrom __future__ import annotations\nx = 1'),
    (breaks_all, COST, "def f():\n    __all__ = []"),
    (breaks_all, COST, "__all__: list[str]\nx = 1"),
]
KEPT = [
    (breaks_one_way, COST, "from ..parallel import layout\nfrom . import cluster"),
    (breaks_one_way, COST, "from tensoropt import errors\nfrom collectives import bandwidth"),
    (breaks_one_way, COST, "import tensoropt.graph\nx = tensoropt.graph.tensor"),
    (breaks_one_way, SEARCH, "from ...cost.memory import Model\nfrom ..frontier import merge"),
    (breaks_one_way, "tensoropt/plan/file.py", "from ..search import frontier"),
    (breaks_one_way, "tensoropt/cli/main.py", "from tensoropt import __version__, frontend, plan"),
    (breaks_one_way, "tensoropt/frontend/job/job.py", "import collectives\nfrom ... import report"),
    (breaks_one_way, "tensoropt/report/text_table.py", "from tensoropt.plan import Plan"),
    (breaks_one_way, "tensoropt/__init__.py", "import_module('.frontend', __name__)"),
    (breaks_one_way, "collectives/transport/mpi.py", "from .. import group"),
    (breaks_one_way, COST, "import tensorflow_like\ntensoropt = 1\ntensoropt.search = 2"),
    (breaks_folders, "tensoropt/frontend/session/session.py", "from ..job import job"),
    (breaks_folders, "tensoropt/frontend/__init__.py", "from tensoropt.frontend.job import job"),
    (breaks_folders, "tensoropt/search/exact/x.py", "from ..bounds import message_passing"),
    (breaks_folders, "tensoropt/search/watch.py", "from tensoropt.search.outcome import Outcome"),
    (
        breaks_folders,
        "tensoropt/search/__init__.py",
        "from tensoropt.search.solvers import SOLVERS",
    ),
    (breaks_folders, "tensoropt/search/find.py", "from tensoropt.search.findings import x"),
    (breaks_folders, "tensoropt/plan/choose.py", "from tensoropt.search.solvers import solver"),
    (breaks_certificates, COST, "from tensoropt import benchmarks_of\nbenchmarks = 1"),
    (breaks_tensorflow, "tensoropt/cost/measure_operator.py", "import tensorflow"),
    (breaks_tensorflow, "tensoropt/graph/from_tensorflow/folding.py", "import tensorflow"),
    (breaks_tensorflow, "collectives/transport/horovod.py", "import horovod.tensorflow"),
    (breaks_tensorflow, COST, "from . import tensorflow"),
    (breaks_private, PRIVATE_FILE, "from tensorflow.python.framework import ops"),
    (breaks_private, "tensoropt/execution/world.py", "from tensorflow.compat import v1"),
    (breaks_mpi, MPI_FILE, "from mpi4py import MPI"),
    (breaks_pickle, COST, "numpy.load(path, allow_pickle=False)"),
    (breaks_all, COST, '"""Nothing yet."""\nfrom __future__ import annotations'),
    (breaks_all, COST, "__all__ = []\nx = 1"),
]


@pytest.mark.parametrize(("rule", "path", "text"), BROKEN)
def test_a_planted_breach_is_found(rule: Rule, path: str, text: str) -> None:
    assert list(rule(Source(path, text)))


@pytest.mark.parametrize(("rule", "path", "text"), KEPT)
def test_what_is_allowed_passes(rule: Rule, path: str, text: str) -> None:
    assert not list(rule(Source(path, text)))


# What the source cannot show: that importing really leaves TensorFlow and MPI alone.


def python(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_the_namespace_alone_imports_neither_tensorflow_nor_mpi() -> None:
    python(
        "import sys, tensoropt\n"
        "loaded = {'tensorflow', 'keras', 'mpi4py'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )


@pytest.mark.parametrize("part", [*PLANNING, "report"])
def test_planning_needs_neither_tensorflow_nor_mpi(part: str) -> None:
    modules = [
        file.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        for file in sources("tensoropt")
        if file.part == part and not any(_matches(file.path, p) for p in TENSORFLOW_FILES)
    ]
    assert modules, f"tensoropt has no part {part!r}"
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in ("tensorflow", "mpi4py"))
    python(f"import sys\n{blocked}" + "".join(f"import {module}\n" for module in modules))
