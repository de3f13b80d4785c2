"""Hosts of a file and of Slurm, and their ranks."""

from __future__ import annotations

from pathlib import Path

import pytest

from tensoropt.elastic.hosts import Host, hosts_of_job, parse_hosts, placement
from tensoropt.errors import OptionError


def test_both_forms_of_a_file(tmp_path: Path) -> None:
    text = "# ours\na:2\n\nb slots=3  # fast\nc\n"
    hosts = (Host("a", 2), Host("b", 3), Host("c", 1))
    assert parse_hosts(text) == hosts
    (tmp_path / "hosts").write_text(text)
    assert hosts_of_job(tmp_path / "hosts", 9, {}) == hosts
    assert hosts_of_job(None, 9, {}) == (Host("", 9),)


@pytest.mark.parametrize("text", ["", "a:0", "a 2", "a\na:2", "a:x"])
def test_a_file_of_another_form(text: str) -> None:
    with pytest.raises(OptionError, match="a line of a file of hosts is"):
        parse_hosts(text)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="--hosts is a file of hosts"):
        hosts_of_job(tmp_path / "none", 2, {})


def test_nodes_of_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scontrol").write_text('#!/bin/sh\n[ "$3" = "n[1-3]" ] && echo n1 n2 n3\n')
    (tmp_path / "scontrol").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    nodes = {"SLURM_JOB_NODELIST": "n[1-3]", "SLURM_TASKS_PER_NODE": "4(x2),2"}
    assert hosts_of_job(None, 10, nodes) == (Host("n1", 4), Host("n2", 4), Host("n3", 2))


@pytest.mark.parametrize(
    ("scontrol", "reason"),
    [
        ("", "No such file"),
        ("#!/bin/sh\necho 'Invalid hostlist' >&2; exit 1\n", "Invalid hostlist"),
    ],
)
def test_slurm_that_names_no_nodes(
    scontrol: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if scontrol:
        (tmp_path / "scontrol").write_text(scontrol)
        (tmp_path / "scontrol").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OptionError, match=rf"Got 'n\[1-3', .*{reason}.* Give .* by --hosts"):
        hosts_of_job(None, 2, {"SLURM_JOB_NODELIST": "n[1-3"})


def test_ranks_fill_hosts_in_order() -> None:
    hosts = (Host("a", 2), Host("b", 3), Host("c", 1))
    assert placement(hosts, (), 4) == (Host("a", 2), Host("b", 2))
    assert placement(hosts, ("b",), 4) == (Host("a", 2), Host("c", 1))
    assert placement(hosts, ("a", "b", "c"), 4) == ()
