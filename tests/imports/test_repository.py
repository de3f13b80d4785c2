"""Every file keeps the rules; importing really leaves TensorFlow and MPI alone."""

from __future__ import annotations

import subprocess
import sys

from tests.imports.rules import (
    EVERYTHING,
    MOST_MODULES,
    PACKAGES,
    PLANNING,
    ROOT,
    TENSORFLOW_FILES,
    Rule,
    breaks_all,
    breaks_certificates,
    breaks_folders,
    breaks_horovod,
    breaks_mpi,
    breaks_one_way,
    breaks_pickle,
    breaks_private,
    breaks_tensorflow,
    full_folders,
    matches,
    sources,
)

RULES: tuple[tuple[Rule, tuple[str, ...]], ...] = (
    (breaks_one_way, PACKAGES),
    (breaks_folders, PACKAGES),
    (breaks_certificates, (*PACKAGES, "examples")),
    (breaks_tensorflow, PACKAGES),
    (breaks_private, (*PACKAGES, "examples", "benchmarks")),
    (breaks_mpi, PACKAGES),
    (breaks_horovod, PACKAGES),
    (breaks_pickle, EVERYTHING),
    (breaks_all, PACKAGES),
)


def test_the_repository_keeps_every_rule() -> None:
    """In one test: each file is parsed once in a process."""
    broken = []
    for rule, folders in RULES:
        files = sources(*folders)
        assert any(file.is_in("tensoropt") for file in files)
        broken += [place for file in files for place in rule(file)]
    assert not broken, "\n" + "\n".join(broken)


def test_folders_have_few_modules() -> None:
    assert not full_folders(file.path for file in sources("tensoropt"))
    crowd = [f"tensoropt/search/pareto/m{number}.py" for number in range(MOST_MODULES)]
    assert not full_folders([*crowd, "tensoropt/search/pareto/__init__.py"])
    assert full_folders([*crowd, "tensoropt/search/pareto/one_more.py"])


# What the source cannot show: that importing really leaves TensorFlow and MPI alone.


def python(program: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr


def test_the_namespace_alone_imports_neither_tensorflow_nor_mpi() -> None:
    python(
        "import sys, tensoropt\n"
        "loaded = {'tensorflow', 'keras', 'mpi4py', 'horovod'} & set(sys.modules)\n"
        "assert not loaded, loaded"
    )


def test_planning_needs_neither_tensorflow_nor_mpi() -> None:
    files = [
        file
        for file in sources("tensoropt")
        if file.part in (*PLANNING, "report")
        and not any(matches(file.path, pattern) for pattern in TENSORFLOW_FILES)
    ]
    assert {file.part for file in files} == {*PLANNING, "report"}
    blocked = "".join(f"sys.modules[{name!r}] = None\n" for name in ("tensorflow", "mpi4py"))
    names = (file.path.removesuffix(".py").removesuffix("/__init__") for file in files)
    modules = [name.replace("/", ".") for name in names]
    python(f"import sys\n{blocked}" + "".join(f"import {module}\n" for module in modules))
