"""Actions of a person on the page of a plan; each checks what the page then shows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["CLICKS"]

Page = Any  # playwright.sync_api.Page
Values = dict[str, Any]


def _point(page: Page, number: int) -> tuple[float, float]:
    """Where the point at a position of the frontier is, in pixels of the window."""
    page.locator("#frontier-chart").scroll_into_view_if_needed()
    x, y = page.evaluate(
        """(place) => {
            const chart = chartOf("frontier-chart"), point = frontier.points[place];
            const box = chart.canvas.getBoundingClientRect();
            return [box.x + chart.scales.x.getPixelForValue(point.memory_bytes),
                    box.y + chart.scales.y.getPixelForValue(point.nanoseconds)];
        }""",
        number,
    )
    return float(x), float(y)


def _plan_place(data: Values) -> int:
    points = data["view"]["frontier"]
    return next(n for n, point in enumerate(points) if point["kind"] == "plan")


def _lonely_point(page: Page, data: Values) -> int:
    """The position of the point of the frontier that lies farthest from the plan."""
    numbers = [n for n, point in enumerate(data["view"]["frontier"]) if point["number"] is not None]
    places = {number: _point(page, number) for number in numbers}
    x, y = _point(page, _plan_place(data))
    return max(places, key=lambda n: abs(places[n][0] - x) + abs(places[n][1] - y))


def hover_over_the_plan(page: Page, data: Values) -> str:
    page.mouse.move(*_point(page, _plan_place(data)))
    page.wait_for_function("() => chartOf('frontier-chart').tooltip.opacity > 0")
    title = str(page.evaluate("chartOf('frontier-chart').tooltip.title[0]"))
    lines = page.evaluate("chartOf('frontier-chart').tooltip.body[0].lines")
    assert any("memory" in line for line in lines), lines
    return f"{title}: {', '.join(lines)}"


def click_a_point(page: Page, data: Values) -> str:
    place = _lonely_point(page, data)
    page.mouse.click(*_point(page, place))
    point = data["view"]["frontier"][place]
    wanted = f"Point {point['number']}" if point["number"] is not None else point["name"]
    if point["kind"] == "plan":  # a frontier of one point
        wanted = "The plan"
    page.wait_for_function(
        "(name) => byId('point-name').textContent.toLowerCase() === name.toLowerCase()", arg=wanted
    )
    shown = page.inner_text("#point-name")
    at_hand = any(each["number"] == point["number"] for each in data["points"])
    text = page.inner_text("#point-strategy")
    if point["kind"] == "plan":
        assert "strategy" in text, text
    elif point["number"] is None:
        assert "comparison" in text, text
    elif at_hand:
        assert "this point" in text.lower(), text
    elif point["fits"]:
        assert f"--point {point['number']}" in text, text
    else:
        assert "--memory-limit" in text, text
    return f"{shown}: {text.splitlines()[0]}"


def move_by_keys(page: Page, data: Values) -> str:
    page.focus("#frontier-chart")
    page.keyboard.press("Home")
    first = page.get_attribute("#frontier-chart", "aria-valuetext")
    page.keyboard.press("ArrowRight")
    second = page.get_attribute("#frontier-chart", "aria-valuetext")
    alone = len(data["view"]["frontier"]) == 1
    assert alone or first != second, first
    page.keyboard.press("End")
    now = page.get_attribute("#frontier-chart", "aria-valuenow")
    assert now == str(len(data["view"]["frontier"]) - 1), now
    return str(second)


def back_to_the_plan(page: Page, data: Values) -> str:
    button = page.locator("#point-plan")
    if button.is_enabled():
        button.click()
    assert page.inner_text("#point-name") == "The plan"
    rows = page.locator("#point-strategy tbody tr").count()
    assert rows == len(data["view"]["layers"]), rows
    return f"{rows} rows of its strategy"


def unfold_and_fold(page: Page, data: Values) -> str:
    layers = data["view"]["layers"]
    place = max(range(len(layers)), key=lambda n: len(layers[n]["operators"]))
    body = f"#layers-table tbody[data-layer='{place}']"
    page.click(f"{body} td.name button")
    shown = page.locator(f"{body} tr.operator").count()
    assert shown == min(200, len(layers[place]["operators"])), shown
    focused = page.evaluate("document.activeElement.getAttribute('aria-expanded')")
    assert focused == "true", focused
    page.keyboard.press("Enter")
    assert page.locator(f"{body} tr.operator").count() == 0
    return f"{layers[place]['name']}: {shown} operators"


def search_by_name(page: Page, data: Values) -> str:
    layer = data["view"]["layers"][-1]
    name = layer["operators"][-1]
    page.fill("#search", name)
    found = page.locator("#layers-table tr.operator mark").all_inner_texts()
    marked = page.locator("#layers-table mark").all_inner_texts()
    assert name in marked, (name, marked)
    page.fill("#search", "no such operator")
    assert page.locator("#layers-table tbody").count() == 0
    assert "no layer" in page.inner_text("#matches")
    page.click("#fold")
    assert page.locator("#layers-table tbody").count() == len(data["view"]["layers"])
    return f"{name}: {len(found) or len(marked)} found"


def order_by_time(page: Page, data: Values) -> str:
    page.select_option("#order", "time")
    layers = data["view"]["layers"]
    times = [each["operators_nanoseconds"] + each["network_nanoseconds"] for each in layers]
    first = page.get_attribute("#layers-table tbody", "data-layer")
    assert times[int(first or -1)] == max(times), first
    page.select_option("#order", "model")
    assert page.get_attribute("#layers-table tbody", "data-layer") == "0"
    return str(layers[times.index(max(times))]["name"])


def follow_communication(page: Page, data: Values) -> str:
    communication = data["view"]["communication"]
    if not communication:
        return str(page.inner_text("#communication-lede")).strip()
    costs = [each["nanoseconds"] for each in communication]
    assert costs == sorted(costs, reverse=True)
    shown = page.locator("#communication-table tbody tr").count()
    assert shown == min(20, len(communication)), shown
    link = page.locator("#communication-table tbody tr button.link").first
    name = link.inner_text()
    link.click()
    focused = page.evaluate("document.activeElement.textContent")
    assert focused == name, focused
    page.click("#fold")
    return f"{len(communication)} communications; a click leads to {name}"


def click_a_bar_of_communication(page: Page, data: Values) -> str:
    if not data["view"]["communication"]:
        return "none"
    page.locator("#communication-chart").scroll_into_view_if_needed()
    x, y = page.evaluate(
        """() => {
            const chart = chartOf("communication-chart"), bar = chart.getDatasetMeta(0).data[0];
            const box = chart.canvas.getBoundingClientRect();
            return [box.x + (bar.x + bar.base) / 2, box.y + bar.y];
        }"""
    )
    page.mouse.click(x, y)
    page.wait_for_selector("#communication-table tr.chosen")
    return str(page.inner_text("#communication-table tr.chosen td"))


def hover_over_the_timeline(page: Page, data: Values) -> str:
    page.locator("#timeline-chart").scroll_into_view_if_needed()
    x, y = page.evaluate(
        """() => {
            const chart = chartOf("timeline-chart");
            const bar = chart.getSortedVisibleDatasetMetas().flatMap((each) => each.data)
                .reduce((a, b) => (b.width * b.height > a.width * a.height ? b : a));
            const {x, y} = bar.getCenterPoint(), box = chart.canvas.getBoundingClientRect();
            return [box.x + x, box.y + y];
        }"""
    )
    page.mouse.move(x, y)
    page.wait_for_function("() => chartOf('timeline-chart').tooltip.opacity > 0")
    lines = page.evaluate("chartOf('timeline-chart').tooltip.body.flatMap((each) => each.lines)")
    return f"{page.evaluate('chartOf(`timeline-chart`).tooltip.title[0]')}: {', '.join(lines)}"


def change_colours(page: Page, data: Values) -> str:
    ground = "getComputedStyle(document.body).backgroundColor"
    before = page.evaluate(ground)
    page.click("#theme")
    after = page.evaluate(ground)
    page.click("#theme")
    assert before != after
    assert page.evaluate(ground) == before
    return f"{before} and {after}"


def reach_by_keyboard(page: Page, data: Values) -> str:
    page.focus(".skip")
    reached = []
    for _ in range(60):
        page.keyboard.press("Tab")
        reached.append(
            page.evaluate(
                "document.activeElement.id || document.activeElement.getAttribute('href')"
                " || document.activeElement.closest('section')?.id || ''"
            )
        )
        if "search" in reached:
            break
    for wanted in ("theme", "#frontier", "frontier-chart", "search"):
        assert wanted in reached, (wanted, reached)
    return f"the search by {len(reached)} presses of Tab"


def narrow_window(page: Page, data: Values) -> str:
    before = page.viewport_size
    page.set_viewport_size({"width": 420, "height": 800})
    page.wait_for_function("() => document.documentElement.scrollWidth <= innerWidth")
    page.set_viewport_size(before)
    page.wait_for_timeout(200)  # charts take their width again
    return "nothing is wider than a window of 420 pixels"


CLICKS: tuple[Callable[[Page, Values], str], ...] = (
    hover_over_the_plan,
    click_a_point,
    move_by_keys,
    back_to_the_plan,
    unfold_and_fold,
    search_by_name,
    order_by_time,
    follow_communication,
    click_a_bar_of_communication,
    hover_over_the_timeline,
    change_colours,
    reach_by_keyboard,
    narrow_window,
)
