"""Sanitizers find nothing in half a second of random driving of the collectives in C++."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracles.sanitize import KINDS, compiled, drive, sanitize
from tests.proofs import proof

FAULTY = r"""
#include <cstdio>
#include <string>
#include <thread>
int main(int, char** arguments) {
  const std::string kind = arguments[1];
  volatile int number = 2147483647;
  if (kind == "many") number = number + 1;
  char* bytes = new char[3];
  if (kind == "processes") bytes[number & 3] = 0;
  std::thread other([&] { bytes[0] = 1; });
  if (kind == "threads") bytes[0] = 2;
  other.join();
  delete[] bytes;
  std::puts("1");
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", ["thread", proof("address")])
def test_random_driving(name: str) -> None:
    trials = sanitize(0.5, seed=7, level="-O0", names=[name])
    assert set(trials) == {kind for each, kind in KINDS if each == name}
    assert min(trials.values()) >= 1  # more where no other load is


def test_what_a_sanitizer_finds_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "faulty.cc"
    source.write_text(FAULTY)
    monkeypatch.setattr("tests.oracles.sanitize.DRIVER", source)
    programs = compiled(tmp_path, "-O0")
    for name, kind, report in (
        ("address", "processes", "heap-buffer-overflow"),
        ("address", "many", "signed integer overflow"),
        ("thread", "threads", "data race"),
    ):
        with pytest.raises(RuntimeError, match=report):
            drive(programs[name], kind, 0, 0)
