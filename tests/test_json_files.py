"""JSON files: what is refused when one is read, and how one is written."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensoropt import json_files
from tensoropt.errors import PlanError
from tensoropt.json_files import digest_of, parse_json, read_json, write_json

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@given(values)
def test_what_python_writes_is_read(value: Any) -> None:
    assert parse_json(json.dumps(value).encode()) == value


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),
        (b'{"a": 1', "Expecting ',' delimiter"),
        (b"\xff\xfe", "can't decode byte 0xff"),
        (b"[NaN]", "the number NaN is not finite"),
        (b"[-Infinity]", "the number -Infinity is not finite"),
        (b"[1e999]", "the number 1e999 is not finite"),
        (b"[9223372036854775808]", "the integer 9223372036854775808 does not fit 64 bits"),
        (b"-" + b"9" * 10_000, r"the integer -9+\.\.\. does not fit 64 bits"),
        (b'{"a": {"b": 1, "c": 2, "b": 1}}', "the name 'b' stands twice in one object"),
        (b"[" * 33 + b"]" * 33, "nested more than 32 levels deep"),
        (b'{"a":' * 33 + b"1" + b"}" * 33, "nested more than 32 levels deep"),
        (b"[" * 100_000 + b"]" * 100_000, "nested more than 32 levels deep"),
        (rb'["\ud800"]', "surrogates not allowed"),
        (b"1" + b" " * 100, "larger than 0 MiB"),
    ],
)
def test_what_is_refused(content: bytes, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if "larger" in reason:
        monkeypatch.setattr(json_files, "_MOST_BYTES", 100)
    with pytest.raises(ValueError, match=reason) as caught:
        parse_json(content)
    assert len(str(caught.value)) < 200


def test_limits_are_inclusive() -> None:
    assert parse_json(b"[9223372036854775807, -9223372036854775808]") == [2**63 - 1, -(2**63)]
    assert parse_json(b'{"a": "\\ud83d\\ude00"}') == {"a": "\N{GRINNING FACE}"}
    value = parse_json(b"[" * 31 + b"0" + b"]" * 31)
    for _ in range(31):
        (value,) = value
    assert value == 0


@pytest.mark.parametrize("path", ["none.json", ".", "a\0b"])
def test_what_cannot_be_read_is_an_error_with_rule_and_remedy(tmp_path: Path, path: str) -> None:
    with pytest.raises(PlanError, match=r"^a list is a file\. Got '.*: .*\. Write one\.$"):
        read_json(f"{tmp_path}/{path}", "a list is a file", "Write one.")


def test_a_device_without_end_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_files, "_MOST_BYTES", 2**20)
    with pytest.raises(PlanError, match="larger than 1 MiB"):
        read_json("/dev/zero", "a list is a file", "Write one.")


def test_a_long_message_has_its_beginning_and_its_end() -> None:
    message = str(PlanError(f"the rule. Got {'x' * 10_000}. The remedy."))
    assert len(message) <= 1000
    assert message.startswith("the rule. Got xxx")
    assert " ... " in message
    assert message.endswith("xxx. The remedy.")
    assert str(PlanError("short")) == "short"


def test_a_digest_is_of_all_the_rest() -> None:
    digest = digest_of({"a": 1, "b": [1.5, None]})
    assert digest == digest_of({"b": [1.5, None], "digest": "x", "a": 1})
    assert digest != digest_of({"a": 1, "b": [1.5, 0]})


def test_a_file_is_replaced_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "values.json"
    write_json(path, [1])
    write_json(path, {"a": [2]}, indent=1)
    assert path.read_text() == '{\n "a": [\n  2\n ]\n}\n'
    (tmp_path / "plain").touch()
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode
    (tmp_path / "plain").unlink()

    def full(_: int) -> None:
        assert json.loads(path.read_text()) == {"a": [2]}
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="full"):
        write_json(path, [3])
    assert [each.name for each in tmp_path.iterdir()] == ["values.json"]
    assert json.loads(path.read_text()) == {"a": [2]}


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as raised:
        write_json(tmp_path / "none" / "values.json", [1])
    assert str(raised.value).endswith(f"'{tmp_path}/none/values.json'")


def test_a_link_still_leads_to_what_is_written(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text("[]")
    (tmp_path / "link.json").symlink_to("real.json")
    write_json(tmp_path / "link.json", [1])
    assert (tmp_path / "link.json").is_symlink()
    assert json.loads((tmp_path / "real.json").read_text()) == [1]


def test_a_pipe_is_written_into() -> None:
    read_end, write_end = os.pipe()
    with os.fdopen(read_end) as reader:
        write_json(f"/dev/fd/{write_end}", [1])
        os.close(write_end)
        assert reader.read() == "[1]\n"
