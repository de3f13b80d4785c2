"""Profile files of this machine: their folder, and the choice of one."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import tensorflow as tf

from tensoropt.cost.machine_profile import Profile, Setting
from tensoropt.frontend.job.hardware import Hardware

__all__ = [
    "FOLDER_VARIABLE",
    "FORCE_VARIABLE",
    "PROFILE_VARIABLE",
    "processor_name",
    "profile_folder",
    "profile_for",
    "profile_path",
    "setting_of",
]

PROFILE_VARIABLE = "TENSOROPT_PROFILE"
"""Environment variable: the profile file to plan with; ``none`` for no profile."""

FORCE_VARIABLE = "TENSOROPT_PROFILE_FORCE"
"""Environment variable: ``1`` to plan with a profile even if it is of another machine."""

FOLDER_VARIABLE = "TENSOROPT_PROFILES"
"""Environment variable: the folder of profiles, by default in the user's cache."""

_NONE = "none"


def processor_name() -> str:
    """The processor's name, as the system reports it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:  # not Linux
        lines = []
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, "") or platform.processor() or platform.machine()


def setting_of(hardware: Hardware, devices: int, mpi: str = "") -> Setting:
    """The setting of a profile for this number of ranks on these machines."""
    return Setting(
        processor=processor_name(),
        cores_per_host=hardware.cores_per_host,
        ranks_per_host=hardware.spread(devices),
        tensorflow=tf.__version__,
        mpi=mpi,
    )


def profile_path(setting: Setting) -> Path:
    """The file in which the profile of a setting is kept, whether it exists or not."""
    return profile_folder() / setting.file_name


def profile_folder() -> Path:
    """The folder of measurements, whether it exists or not."""
    folder = os.environ.get(FOLDER_VARIABLE)
    if folder:
        return Path(folder)
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "tensoropt" / "profiles"


def profile_for(setting: Setting) -> Profile | None:
    """The complete profile of a setting, from the file that `PROFILE_VARIABLE` names or the cache.

    Raises:
        PlanError: if the file is damaged, or the named file is of another setting.
    """
    named = os.environ.get(PROFILE_VARIABLE)
    if named == _NONE:
        return None
    path = Path(named) if named else profile_path(setting)
    if not named and not os.path.exists(path):  # False, too, where the user may not look
        return None
    profile = Profile.load(path, setting, force=os.environ.get(FORCE_VARIABLE) == "1")
    if not profile.complete:
        sys.stderr.write(
            f"tensoropt: the profile {path} is not complete and not used; `tensoropt profile` "
            "goes on where it stopped\n"
        )
        return None
    return profile
