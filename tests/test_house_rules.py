"""House rules that no linter checks: exports, sizes of folders, imports that stay lazy.

Layers and forbidden imports are in pyproject.toml, for import-linter and ruff.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = [
    path.relative_to(ROOT).as_posix()
    for package in ("tensoropt", "collectives")
    for path in sorted((ROOT / package).rglob("*.py"))
]
MOST_MODULES = 12
"""Modules of a folder, beside its namespace: as many as a reader takes in at once."""
PLANNING = (
    *("graph", "tdl", "parallel", "rewriting", "transformations", "cost", "problem", "search"),
    *("pipeline", "plan", "planner", "report"),
)
WITH_TENSORFLOW = ("tensoropt/cost/measuring/", "tensoropt/graph/from_tensorflow/")


def _lacks_all(text: str) -> bool:
    """Whether a module has code and no ``__all__``."""
    code = [
        node
        for node in ast.parse(text).body
        if not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        and not (isinstance(node, ast.ImportFrom) and node.module == "__future__")
    ]
    names = [
        target.id
        for node in code
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name)
    ]
    return bool(code) and "__all__" not in names


def test_every_module_says_what_it_exports() -> None:
    programs = [path for path in MODULES if not path.endswith("__main__.py")]
    assert not [path for path in programs if _lacks_all((ROOT / path).read_text("utf-8"))]


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        ('"""Memory."""\nfrom __future__ import annotations\nx = 1', True),
        ("def f():\n    __all__ = []", True),
        ("__all__: list[str]\nx = 1", True),
        ('"""Nothing yet."""\nfrom __future__ import annotations', False),
        ("__all__ = []\nx = 1", False),
    ],
)
def test_a_module_without_exports_is_found(text: str, lacks: bool) -> None:
    assert _lacks_all(text) is lacks


def test_folders_have_few_modules() -> None:
    paths = [PurePosixPath(path) for path in MODULES if not path.endswith("__init__.py")]
    count = Counter(path.parent.as_posix() for path in paths)
    assert {folder: n for folder, n in count.items() if n > MOST_MODULES} == {}


def test_nothing_is_unpickled() -> None:
    """NumPy's files hold no objects either."""
    texts = {path: (ROOT / path).read_text("utf-8") for path in MODULES}
    allowing = [
        (path, node.lineno)
        for path, text in texts.items()
        if "allow_pickle" in text
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "allow_pickle" and getattr(keyword.value, "value", True) is not False
    ]
    assert not allowing


def _python(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


def test_the_namespace_alone_imports_neither_tensorflow_nor_mpi() -> None:
    _python(
        "import sys, tensoropt\n"
        "heavy = {'tensorflow', 'keras', 'mpi4py', 'horovod', 'click', 'rich'}\n"
        "loaded = heavy & set(sys.modules)\n"
        "assert not loaded, loaded"
    )


def test_planning_needs_neither_tensorflow_nor_mpi() -> None:
    planning = tuple(f"tensoropt/{package}/" for package in PLANNING)
    paths = [p for p in MODULES if p.startswith(planning) and not p.startswith(WITH_TENSORFLOW)]
    assert {path.split("/")[1] for path in paths} == set(PLANNING)
    names = [path.removesuffix(".py").removesuffix("/__init__") for path in paths]
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in ("tensorflow", "mpi4py"))
    imports = "".join(f"import {name.replace('/', '.')}\n" for name in names)
    _python(f"import sys\n{blocked}{imports}")
