"""Click through pages of plans in headless Chromium.

    python -m tests.oracles.page                      plans four models and tests their pages
    python -m tests.oracles.page PAGE.html ...        tests pages that are there

A line for each click says what the page showed. Screenshots are taken in light and dark colours,
and of the head after a click. A page of 3 MB or more, or one that takes 2 seconds or more to open,
fails. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.oracles.page.clicks import CLICKS

EXAMPLES = {
    "transformer": ["examples/train_transformer.py", "--devices", "4"],
    "pipeline": ["examples/train_transformer.py", "--devices", "4", "--pipeline", "2"],
    "wide_resnet": [
        *("examples/train_wide_resnet.py", "--devices", "8", "--cluster", "8-v100"),
        *("--", "--depth", "152", "--base-channels", "64", "--batch", "256"),
    ],
    "keras": ["tests/frontend/keras_example_program.py", "--devices", "4", "--cluster", "8-v100"],
}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_READY_SECONDS = 30
_OPENED = 3  # times, of which the least counts: other load makes one longer
_WAIT_SECONDS = 10  # for what a click shows
_MOST_BYTES, _MOST_MILLISECONDS = 3 * 10**6, 2000  # of a page


def main() -> int:
    """Test all pages; the status is 1 if a click shows something else than it should."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", nargs="*", type=Path)
    parser.add_argument("--screenshots", type=Path, help="the folder to write them to")
    options = parser.parse_args()
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        sys.stderr.write("NOT TESTED: no Chromium is on this machine; apt-get install chromium\n")
        return 1
    with tempfile.TemporaryDirectory() as folder:
        pages = options.pages or [planned_page(name, Path(folder)) for name in EXAMPLES]
        results = [tested(browser, page.resolve(), options.screenshots) for page in pages]
    print(json.dumps(results))
    return int(any(result["failed"] for result in results))


def planned_page(name: str, folder: Path) -> Path:
    """Plan an example, and return its page."""
    page = folder / f"{name}.html"
    command = [sys.executable, "-m", "tensoropt", "plan", "--html", str(page), *EXAMPLES[name]]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=1800)
    return page


def milliseconds_to_open(page: Any, file: Path) -> int:
    """Open a page, and return the time that it took."""
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready=yes]", timeout=1000 * _READY_SECONDS)
    took = page.evaluate("performance.timing.loadEventEnd - performance.timing.navigationStart")
    return int(took)


def tested(browser: str, file: Path, screenshots: Path | None) -> dict[str, Any]:
    """Click through a page, and return what it cost and which clicks failed."""
    from playwright.sync_api import sync_playwright

    troubles: list[str] = []
    failed: list[str] = []
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = chromium.new_page(viewport={"width": 1280, "height": 900}, color_scheme="light")
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("console", lambda line: troubles.append(line.text))
        page.on("request", lambda request: troubles.append(request.url))
        opened = min(milliseconds_to_open(page, file) for _ in range(_OPENED))
        page.set_default_timeout(1000 * _WAIT_SECONDS)
        data = page.evaluate("data")
        for click in CLICKS:
            name = click.__name__.replace("_", " ")
            try:
                print(f"{file.stem}: {name}: {click(page, data)}", flush=True)
            except Exception as error:
                failed.append(name)
                print(f"{file.stem}: {name}: FAILED: {error!r}", flush=True)
            if screenshots and click.__name__ == "click_a_point":
                page.locator("#frontier").screenshot(path=screenshots / f"{file.stem}-point.png")
        if screenshots:
            page.screenshot(path=screenshots / f"{file.stem}-light.png", full_page=True)
            page.click("#theme")
            page.screenshot(path=screenshots / f"{file.stem}-dark.png", full_page=True)
        chromium.close()
    outside = [each for each in troubles if not each.startswith((file.as_uri(), "data:"))]
    size = file.stat().st_size
    if size >= _MOST_BYTES or opened >= _MOST_MILLISECONDS:
        outside.append(f"a page of {size:,} bytes that opens in {opened:,} ms")
    return {
        "page": file.name,
        "bytes": size,
        "operators": len(data["operators"]["name"]),
        "points": len(data["points"]),
        "open_milliseconds": opened,
        "clicks": len(CLICKS),
        "failed": failed + outside,
    }


if __name__ == "__main__":
    sys.exit(main())
