"""The page in a browser, and what it shows there: charts as plotly has them, and tables."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from page_cases import METRICS

DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
PERCENT = {name: "\u00a0%" if percent else "" for name, (_, percent, _) in METRICS.items()}
HEADS = [label + PERCENT[name] for name, (label, *_) in METRICS.items()]


class Visitor:
    """Opens pages offline, and notes what they ask for and what goes wrong.

    A tab that is given back is used again, all pages have one address, and blank lines set their scripts to one place:
    then the browser compiles the charts' library once, which takes more than a second.
    """

    def __init__(self, browser, folder: Path) -> None:
        self.browser = browser
        self.path = folder / "page.html"
        self.troubles: list[str] = []
        self.lent: list[tuple[str, Any]] = []
        self._idle: dict[str, list[Any]] = {}

    def __call__(self, path: Path, **settings):
        kind = repr(sorted(settings.items()))
        idle = self._idle.setdefault(kind, [])
        page = idle.pop() if idle else self._tab({"viewport": DESKTOP, "offline": True, **settings})
        self.lent.append((kind, page))
        before, data, after = path.read_text(encoding="utf-8").partition('<script id="data"')
        assert data
        self.path.write_text(before + "\n" * (5000 - before.count("\n")) + data + after, encoding="utf-8")
        page.goto(self.path.as_uri())
        return page

    def give_back(self, lent: int = 0) -> None:
        """Take back the tabs that were lent since there were so many, as they were when they were new."""
        for kind, page in self.lent[lent:]:
            page.emulate_media()
            page.set_viewport_size(PHONE if "is_mobile" in kind else DESKTOP)
            self._idle[kind].append(page)
        del self.lent[lent:]

    def _tab(self, settings: dict[str, Any]):
        page = self.browser.new_context(**settings).new_page()
        page.set_default_timeout(20_000)
        page.on("console", lambda message: self.troubles.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: self.troubles.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (self.troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: self._asked(request.url))
        return page

    def _asked(self, url: str) -> None:
        if url != self.path.as_uri() and not url.startswith(("data:", "blob:")):
            self.troubles.append(f"request: {url}")


def data_of(path: Path) -> Any:
    """Return the data that a page holds for its scripts."""
    (text,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', path.read_text())
    return json.loads(text)


def eventually(condition: Callable[[], Any], page) -> Any:
    """Return what a condition gives as soon as it holds; charts follow a new width when the browser gets to it."""
    for _ in range(100):
        if found := condition():
            return found
        page.wait_for_timeout(30)
    raise AssertionError("it never came true")


def chart(page, figure: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return traces and layout of the first chart of a figure."""
    host = page.locator(f"{figure} .chart").first
    found = host.evaluate("host => JSON.parse(JSON.stringify({ data: host.data, layout: host.layout }))")
    return found["data"], found["layout"]


TABLE = """table => ({
  head: [...table.tHead.rows[0].cells].map((cell) => cell.textContent),
  body: [...table.tBodies[0].rows].map((row) => [...row.cells].map((cell) => cell.textContent)),
})"""


def table(page, selector: str) -> dict[str, Any]:
    """Return head and body of a table as text."""
    return page.locator(f"{selector} table").first.evaluate(TABLE)


def reads(text: str, *numbers: float | None, digits: int, unit: str = "") -> bool:
    """Say whether a text is these numbers, rounded to so many places: one, or mean ± standard deviation.

    A page holds numbers of six digits, which it rounds once more.
    """
    if numbers[0] is None:
        return text == "–"
    given = [number for number in numbers if number is not None]
    form = r"(-?\d+" + (rf"\.\d{{{digits}}}" if digits else "") + ")"
    found = re.fullmatch(" ± ".join([form] * len(given)) + re.escape(unit), text)
    pairs = [] if found is None else zip(found.groups(), given, strict=True)
    return found is not None and all(abs(float(a) - b) <= 0.51 * 10**-digits for a, b in pairs)


def near(values: Any, digits: int = 6) -> Any:
    """Return what numbers of so many digits have to be near to."""
    return pytest.approx(np.asarray(values, float), rel=6 * 10.0**-digits, abs=1e-12)


# Walking through a run

SNAPSHOT = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const text = (selector) => all(selector).map((one) => one.textContent);
  const of = (selector, name) => all(selector).map((one) => one.getAttribute(name));
  const drawn = (figure) => JSON.parse(JSON.stringify(document.querySelector(figure + " .chart").data ?? null));
  return {
    name: text("#walk-name")[0], said: of("#walk-alpha", "aria-valuetext")[0],
    caption: text("#walk-numbers caption")[0], head: text("#walk-numbers thead th"),
    body: all("#walk-numbers tbody tr").map((row) => [...row.cells].map((cell) => cell.textContent)),
    traces: drawn("#walk-reliability"), triangle: drawn("#walk-triangle"),
    title: text("#walk-strip h3")[0] ?? "", classes: of("#walk-strip li", "class"),
    images: of("#walk-strip img", "src"), truths: text("#walk-strip .truth"),
    answers: text("#walk-strip .answer"), sure: text("#walk-strip li > span:last-child"),
  };
}"""
EVERYWHERE = f"""() => {{
  const snapshot = {SNAPSHOT};
  const control = document.querySelector("#walk-alpha:not([hidden] *), #walk-list:not([hidden]) select");
  const count = control.options ? control.options.length : Number(control.max) + 1;
  return [...Array(count).keys()].map((place) => {{
    control.value = place;
    control.dispatchEvent(new Event("input"));
    return snapshot();
  }});
}}"""


def everywhere_in(page) -> list[dict[str, Any]]:
    """Go to every point of a run, and return what is shown there."""
    return page.evaluate(EVERYWHERE)
