"""Builds the package with its kernels compiled; all else is in pyproject.toml."""

import os
import subprocess
import sys

from setuptools import setup
from setuptools.command.build_py import build_py


class BuildWithKernels(build_py):
    """Compiles the kernels of planning beside the modules, so that a wheel has them.

    Numba reads them where the processor, Python, itself and the source are the same; elsewhere it
    compiles what is called, and keeps that.
    """

    def run(self) -> None:
        super().run()
        if self.editable_mode:  # `make kernels`
            return
        settings = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        settings.pop("NUMBA_CACHE_DIR", None)
        compiled = subprocess.run(
            [sys.executable, "-m", "tensoropt.planner.kernels"], cwd=self.build_lib, env=settings
        )
        if compiled.returncode:
            self.warn("the kernels of planning are not compiled: the first search will do that")


setup(cmdclass={"build_py": BuildWithKernels})
