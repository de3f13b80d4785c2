"""What launchers say in the environment, and what MPI is told because of it."""

from __future__ import annotations

import os

import pytest

from collectives.errors import TransportError
from collectives.transport import launch
from collectives.transport.launch import (
    Launch,
    available_cores,
    check_library,
    check_size,
    detect,
    distinct_names,
    library_settings,
    mpi_settings,
    reads_memory,
    refuse_single_ranks,
)

MIB = 1 << 20
SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "11",
    "SLURM_STEP_TASKS_PER_NODE": "4(x2),3",
    "SLURM_NODEID": "0",
}
MPICH = "MPICH Version:      5.0.2\nMPICH Device:     ch4:ucx ofi\nMPICH configure: --with-x"
OPEN_MPI = "Open MPI v5.0.11, package: Open MPI user@localhost Distribution"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, None),
        ({"PMI_RANK": "1", "PMI_SIZE": "4", "MPI_LOCALNRANKS": "2"}, Launch("MPICH", 4, 2)),
        ({"PMI_RANK": "1", "PMI_SIZE": "4"}, Launch("MPICH", 4, None)),
        (
            {
                "OMPI_COMM_WORLD_RANK": "0",
                "OMPI_COMM_WORLD_SIZE": "8",
                "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
            },
            Launch("Open MPI", 8, 8),
        ),
        (
            {
                "SLURM_PROCID": "3",
                "SLURM_STEP_NUM_TASKS": "8",
                "SLURM_STEP_TASKS_PER_NODE": "4(x2)",
            },
            Launch("Slurm", 8, 4),
        ),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}, None),
        ({**SRUN, "SLURM_NODEID": "2"}, Launch("Slurm", 11, 3)),
        ({**SRUN, "PMI_RANK": "3", "PMI_SIZE": "11"}, Launch("Slurm", 11, 4)),
        ({**SRUN, "PMIX_RANK": "3"}, Launch("Slurm", 11, 4)),
        # mpirun in a job of Slurm: srun has started its process on each of two nodes.
        (
            {**SRUN, "SLURM_STEP_NUM_TASKS": "2", "MPI_LOCALNRANKS": "4", "PMI_SIZE": "8"},
            Launch("MPICH", 8, 4),
        ),
        ({"PMIX_RANK": "0"}, Launch("PMIx", None, None)),
        ({"COLLECTIVES_TRANSPORT": "mpi"}, Launch("COLLECTIVES_TRANSPORT", None, None)),
        ({"COLLECTIVES_TRANSPORT": "single", "PMI_RANK": "0", "PMI_SIZE": "2"}, None),
    ],
)
def test_launchers_are_known_by_their_variables(
    environment: dict[str, str], expected: Launch | None
) -> None:
    assert detect(environment) == expected


def test_an_unknown_transport_is_refused() -> None:
    with pytest.raises(TransportError, match=r"or not set\. Got 'nccl'"):
        detect({"COLLECTIVES_TRANSPORT": "nccl"})


def test_waiting_ranks_sleep_only_where_they_outnumber_the_cores() -> None:
    assert mpi_settings(Launch("MPICH", 4, 4), 4, 1024 * MIB) == {}
    assert mpi_settings(Launch("MPICH", 16, None), 2, 1 * MIB) == {}
    crowded = mpi_settings(Launch("MPICH", 16, 5), 4, 1024 * MIB)
    assert crowded == {"MPIR_CVAR_ENABLE_HEAVY_YIELD": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}


def test_little_shared_memory_is_spared() -> None:
    full = Launch("MPICH", 16, 16)
    container = mpi_settings(full, 16, 64 * MIB)
    assert container == {"UCX_TLS": "^posix"}
    tiny = mpi_settings(full, 16, 16 * MIB)
    assert tiny == {"UCX_TLS": "^posix", "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS": "8"}
    assert mpi_settings(full, 16, None) == {}


def test_mpich_does_not_read_the_memory_of_ranks_where_the_system_forbids_it() -> None:
    assert reads_memory() in (True, False)
    forbidden = mpi_settings(Launch("MPICH", 4, None), 4, None, reads=False)
    assert forbidden == {"MPIR_CVAR_CH4_CMA_ENABLE": "0"}


def test_processes_that_mpi_does_not_join_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A launcher of another MPI would start so many jobs of one process."""
    monkeypatch.delenv("PMIX_RANK", raising=False)
    with pytest.raises(TransportError, match=r"4 processes from Slurm but 1 in MPICH Version"):
        check_size(Launch("Slurm", 4, 2), 1, MPICH)
    with pytest.raises(TransportError, match=r"srun --mpi=pmix \("):
        check_size(Launch("Slurm", 4, 2), 1, OPEN_MPI)
    with pytest.raises(TransportError, match=r"Got MPICH, and mpi4py with Open MPI v5\S+: start"):
        check_library(Launch("MPICH", 4, 4), OPEN_MPI)
    check_size(Launch("COLLECTIVES_TRANSPORT", None, None), 1, MPICH)
    check_library(Launch("MPICH", 4, 4), MPICH)

    monkeypatch.setenv("PMIX_RANK", "1")  # which tells no size
    with pytest.raises(TransportError, match=r"Got 2 processes from PMIx but 1 in Open MPI"):
        check_size(Launch("PMIx", None, None), 1, OPEN_MPI)
    with pytest.raises(TransportError, match=r"Slurm with PMIx, .* srun --mpi=pmi2 \("):
        check_library(Launch("Slurm", 4, 2), MPICH)
    check_library(Launch("Slurm", 4, 2), f"{MPICH} --with-pmix")
    check_library(Launch("Open MPI", 4, 2), OPEN_MPI)
    check_size(Launch("PMIx", None, None), 4, OPEN_MPI)


def test_mpich_of_two_networks_takes_the_one_with_short_addresses_under_slurm() -> None:
    slurm = Launch("Slurm", 4, 2)
    assert library_settings(slurm, MPICH) == {"MPIR_CVAR_CH4_NETMOD": "ofi"}
    assert not library_settings(Launch("MPICH", 4, 2), MPICH)
    assert not library_settings(slurm, MPICH.replace("ucx ofi", "ucx"))
    assert not library_settings(slurm, OPEN_MPI)


def test_machines_of_one_name_stay_apart() -> None:
    machines = [("box", "1"), ("box", "2"), ("other", "3"), ("box", "1"), ("box", "4")]
    assert distinct_names(machines) == ("box", "box#2", "other", "box", "box#3")


@pytest.mark.parametrize("variable", ["WORLD_SIZE", "HOROVOD_SIZE"])
def test_processes_of_a_launcher_without_mpi_are_refused(variable: str) -> None:
    with pytest.raises(TransportError, match=f"Got {variable}=4, .* mpirun -np 4, or set COLL"):
        refuse_single_ranks({variable: "4"})
    refuse_single_ranks({variable: "1"})
    refuse_single_ranks({variable: "4", "COLLECTIVES_TRANSPORT": "single"})


def test_a_job_has_the_cores_that_slurm_and_a_container_give_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The parent process has eight cores, this one two."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda who: range(8 if who else 2))
    monkeypatch.delenv("SLURM_CPUS_ON_NODE", raising=False)
    monkeypatch.setattr(launch, "core_limit", lambda: None)
    assert available_cores() == 8
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "4")
    assert available_cores() == 4
    monkeypatch.setenv("SLURM_CPUS_ON_NODE", "1")
    assert available_cores() == 2
    monkeypatch.setattr(launch, "core_limit", lambda: 1)
    assert available_cores() == 1
