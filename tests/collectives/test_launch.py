"""What launchers say in the environment, and what MPI is told because of it."""

from __future__ import annotations

import pytest

from collectives.errors import TransportError
from collectives.transport.launch import Launch, available_cores, detect, mpi_settings

MIB = 1 << 20


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
    launch = Launch("MPICH", 16, 16)
    container = mpi_settings(launch, 16, 64 * MIB)
    assert container == {"UCX_TLS": "^posix"}
    tiny = mpi_settings(launch, 16, 16 * MIB)
    assert tiny == {"UCX_TLS": "^posix", "MPIR_CVAR_CH4_SHM_POSIX_IQUEUE_NUM_CELLS": "8"}
    assert mpi_settings(launch, 16, None) == {}


def test_there_is_a_core_to_run_on() -> None:
    assert available_cores() >= 1
