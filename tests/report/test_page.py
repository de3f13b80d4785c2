"""The page of a plan: one file that needs nothing else, and has the plan's view."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tensoropt.cli.main import main
from tensoropt.cli.view import page_server
from tensoropt.errors import OptionError
from tensoropt.plan import Plan
from tensoropt.plan.details import Details
from tensoropt.report.page import chart_library
from tensoropt.report.page.page import page_of
from tensoropt.view import view_of
from tests.view.small_steps import planned, planned_in_stages

MOST_BYTES = 3_000_000
VOID = {"meta", "link", "input"}
HOSTILE = "</script><img src=http://x.test/ onerror=alert(1)> & {{charts}}"


class Parsed(HTMLParser):
    """A page's elements: whether they are closed, what they load, and the text of scripts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.loads: list[str] = []
        self.tags: list[str] = []
        self.ids: list[str] = []
        self.data = ""
        self._is_data = False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        self.ids += [values["id"] or ""] if "id" in values else []
        self.loads += [values[name] or "" for name in ("src", "href") if name in values]
        self._is_data = values.get("id") == "data"
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
        self._is_data = False

    def handle_data(self, data: str) -> None:
        self.data += data if self._is_data else ""


@pytest.mark.parametrize("plan", [planned, planned_in_stages], ids=["whole", "stages"])
def test_a_page_is_whole_and_loads_nothing(plan: object) -> None:
    made: Plan = plan()  # type: ignore[operator]
    page = page_of(made)
    parsed = Parsed(page)
    assert parsed.open == []
    assert len(set(parsed.ids)) == len(parsed.ids)
    assert all(each.startswith(("#", "data:")) for each in parsed.loads)
    assert "default-src 'none'" in page
    assert "{{" not in page.replace("${{", "").split("<script>")[0]
    values = json.loads(parsed.data)
    assert values["view"] == json.loads(json.dumps(view_of(made).to_json()))
    columns, texts = values["operators"], values["texts"]
    for place, operator in enumerate(made.operators):
        assert columns["name"][place] == operator.name
        assert texts[columns["type"][place]] == operator.type
        assert operator.output in texts[columns["maps"][place]]


def test_names_stay_texts() -> None:
    plan = replace(planned(), notes=(HOSTILE,))
    parsed, harmless = Parsed(page_of(plan)), Parsed(page_of(planned()))
    assert parsed.tags == harmless.tags
    assert json.loads(parsed.data)["view"]["notes"] == [HOSTILE]


def test_a_page_has_the_strategies_of_points() -> None:
    plan, other = planned(), planned_in_stages()
    (point,) = json.loads(Parsed(page_of(plan, {3: other})).data)["points"]
    assert point["number"] == 3
    assert [row["words"] for row in point["layers"]] == [row.words for row in view_of(other).layers]


def test_a_page_of_3000_operators_is_below_3_megabytes() -> None:
    plan = planned()
    copies = -(-3000 // len(plan.operators))
    operators = tuple(
        replace(operator, name=f"model/tower{copy}/{operator.name}", reads=())
        for copy in range(copies)
        for operator in plan.operators
    )
    large = replace(plan, operators=operators, details=Details())
    page = page_of(large, dict.fromkeys(range(16), large))
    assert len(page.encode()) < MOST_BYTES


def test_every_script_of_the_page_is_in_it() -> None:
    page = page_of(planned())
    folder = resources.files("tensoropt.report.page")
    for file in folder.iterdir():
        if file.name.endswith((".js", ".css")):
            assert file.read_text("utf-8") in page, file.name


def test_without_the_chart_library_an_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(chart_library, "_PACKAGE", "no_such_package")
    with pytest.raises(OptionError, match=r"no such package; run pip install 'tensoropt\[page\]'"):
        page_of(planned())
    monkeypatch.setattr(chart_library, "_PACKAGE", "numpy")
    with pytest.raises(OptionError, match=r"version .* which has no"):
        page_of(planned())


def test_the_command_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan, page = tmp_path / "plan.json", tmp_path / "plan.html"
    planned().save(plan)
    assert main(["show", str(plan), "--html", str(page)]) == 0
    assert page.read_text("utf-8") == page_of(planned())
    assert capsys.readouterr().out == f"page written to {page}\n"
    assert main(["show", str(plan), "--html", str(tmp_path / "none" / "plan.html")]) == 1
    assert "an existing folder" in capsys.readouterr().err


def test_a_server_serves_the_page_alone(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    planned().save(plan)
    with page_server(plan, 0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}"
            with urlopen(f"{address}/") as answer:
                assert answer.read().decode() == page_of(planned())
            with pytest.raises(HTTPError, match="404") as refused:
                urlopen(f"{address}/plan.json")
            refused.value.close()
            with pytest.raises(OptionError, match=f"--port {server.server_port}"):
                page_server(plan, server.server_port)
            plan.write_text("{")
            with pytest.raises(HTTPError, match="500") as damaged:
                urlopen(f"{address}/")
            assert "a plan is a whole, readable JSON file" in damaged.value.read().decode()
            damaged.value.close()
        finally:
            server.shutdown()
            thread.join()
