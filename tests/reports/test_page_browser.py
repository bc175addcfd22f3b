"""The page in a real browser: charts, slider, triangle, copying, colours, widths, and that it asks for nothing."""

import json
from collections.abc import Iterator
from pathlib import Path

import made_runs
import pytest
from visiting import PHONE, Visitor, copied, eventually

from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.rows import Row
from subspaces.experiments.opening import opened as evaluations
from subspaces.reports import page as report_page


def write_report(folders, path: Path) -> Path:
    return report_page.write_report(evaluations(folders), path)


sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright (pip install playwright)")
EVIL = "</script><img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    out = tmp_path_factory.mktemp("runs")
    made = {name: made_runs.run(out, name) for name in ("standard", "line", "simplex")}
    return made | {"line1": made_runs.run(out, "line", seed=1), "standard1": made_runs.run(out, "standard", seed=1)}


@pytest.fixture(scope="module")
def report(runs, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(list(runs.values()), tmp_path_factory.mktemp("page") / "report.html")


@pytest.fixture
def visit(visitor) -> Iterator[Visitor]:
    """Open a page; at the end, it may have asked for nothing and nothing may have gone wrong."""
    before = len(visitor.lent)
    yield visitor
    visitor.give_back(before)
    assert visitor.troubles == []


@pytest.fixture(scope="module")
def opened(visitor, report):
    return visitor(report, permissions=["clipboard-read", "clipboard-write"])


@pytest.fixture
def page(visit, opened):
    """The page of all runs, at the start of the first line."""
    opened.select_option("#walk-run", label="simplex (m = 3), seed 0")
    opened.select_option("#walk-run", label="line, seed 0")
    opened.select_option("#along-metric", label="Accuracy")
    return opened


def rows_of(folder: Path, kind: str = "point") -> dict[str, Row]:
    """Return the rows of a run by their alphas."""
    rows = [row for row in Evaluation.load(folder).rows if row.kind == kind and row.average != "logits"]
    return {json.dumps(row.alphas): row for row in reversed(rows)}


def cells(page, selector: str = "#walk-numbers") -> dict[str, list[str]]:
    """Return the body of a table, by its first column."""
    lines = page.locator(f"{selector} tbody tr").all()
    return {line.locator("th").inner_text(): line.locator("td.number").all_inner_texts() for line in lines}


def expected(row: Row) -> dict[str, str]:
    metrics = row.metrics
    percent = {name: f"{100 * metrics[key]:.1f}\u00a0%" for name, key in (("Accuracy", "accuracy"), ("ECE", "ece"))}
    return {**percent, "NLL": f"{metrics['nll']:.3f}", "Brier score": f"{metrics['brier']:.3f}"}


def assert_shows(page, row: Row, ensemble: Row) -> None:
    shown = cells(page)
    for column, wanted in ((0, expected(row)), (2, expected(ensemble))):
        assert {name: shown[name][column] for name in wanted} == wanted
    bars = page.evaluate("document.querySelector('#walk-reliability .chart').data[1].y")
    assert bars == pytest.approx([100 * value if value else value for value in row.reliability.accuracy], abs=0.02)


def pair(runs_of_line: dict[str, Row], alpha: float) -> Row:
    return next(
        row
        for row in runs_of_line.values()
        if any(abs(float(one) - min(alpha, 1 - alpha)) < 1e-9 for one in row.alphas)
    )


def test_every_chart_is_drawn(page):
    drawn = {
        "#along-figure": ".scatterlayer .trace path.js-line",
        "#roles-figure": ".scatterlayer .trace path.point",
        "#walk-reliability": ".barlayer .point path",
        "#planes-figure": ".contourlines path",
        "#training-figure": ".scatterlayer .trace path.js-line",
        "#selective-figure": ".scatterlayer .trace path.js-line",
    }
    counts = {name: page.locator(f"{name} {marks}").count() for name, marks in drawn.items()}
    assert all(count >= 2 for count in counts.values()), counts
    assert page.locator(".js-plotly-plot").count() == len(drawn) + 1  # L2 and cos² are two
    assert page.locator("#walk-strip img").first.evaluate("image => image.complete && image.naturalWidth") == 8


def test_the_metric_and_the_legend_change_the_chart(page, runs):
    chart = "document.querySelector('#along-figure .chart')"
    page.select_option("#along-metric", label="NLL")
    assert page.evaluate(f"{chart}.layout.yaxis.title.text") == "NLL"
    lines = page.evaluate(f"{chart}.data.filter(trace => trace.name === 'line: at α').map(trace => trace.y)")
    two = [rows_of(runs[name]) for name in ("line", "line1")]
    mean = [(two[0][key].metrics["nll"] + two[1][key].metrics["nll"]) / 2 for key in sorted(two[0], key=json.loads)]
    assert lines[0] == pytest.approx(mean, rel=1e-5)
    before = page.evaluate(f"{chart}.data.length")
    box = page.get_by_role("checkbox", name="line: at α", exact=True)
    box.focus()
    page.keyboard.press("Space")
    assert page.evaluate(f"{chart}.data.length") == before - 2  # the line and its band
    page.keyboard.press("Space")
    assert page.evaluate(f"{chart}.data.length") == before


def test_the_slider_by_keyboard_shows_the_numbers_of_the_record(page, runs):
    points, pairs = rows_of(runs["line"]), rows_of(runs["line"], "ensemble")
    slider = page.get_by_role("slider", name="Point of the subspace, α")
    slider.focus()
    assert slider.get_attribute("aria-valuetext") == "α = 0.1"
    assert_shows(page, points["[0.1]"], pair(pairs, 0.1))
    assert len({tuple(line[k] for line in cells(page).values()) for k in range(3)}) == 3  # no two columns alike
    for _ in range(13):
        page.keyboard.press("ArrowRight")
    assert slider.get_attribute("aria-valuetext") == "α = 0.75"
    assert_shows(page, points["[0.75]"], pair(pairs, 0.75))
    sync_api.expect(page.get_by_role("status").filter(has_text="Accuracy")).to_contain_text(
        f"α = 0.75: Accuracy {expected(points['[0.75]'])['Accuracy']}"
    )
    page.keyboard.press("Home")
    assert_shows(page, points["[0.0]"], pair(pairs, 0.0))


def test_the_triangle_by_keyboard_pointer_and_list(page, runs):
    page.select_option("#walk-run", label="simplex (m = 3), seed 0")
    points = rows_of(runs["simplex"])
    vertices = next(row for row in rows_of(runs["simplex"], "ensemble").values() if row.role == "vertex")
    triangle = page.locator("#walk-triangle")
    assert page.locator("#walk-name").inner_text() == "vertex 1"
    triangle.focus()
    page.keyboard.press("Home")
    assert page.locator("#walk-name").inner_text() == "midpoint"
    for _ in range(8):
        page.keyboard.press("ArrowUp")
    assert page.locator("#walk-name").inner_text() == "vertex 3"
    assert_shows(page, points["[[0.0, 0.0, 1.0]]"], vertices)
    page.keyboard.press("Home")
    assert page.locator("#walk-name").inner_text() == "midpoint"
    corner = page.locator("#walk-triangle circle").nth(1).bounding_box()
    page.mouse.click(corner["x"] + corner["width"] / 2, corner["y"] + corner["height"] / 2)
    second = page.locator("#walk-point option").nth(1).inner_text()
    assert page.locator("#walk-name").inner_text() == second
    assert page.locator("#walk-point option:checked").inner_text() == second
    page.select_option("#walk-point", label="edge 1–2")
    assert_shows(page, points["[[0.5, 0.5, 0.0]]"], vertices)
    page.select_option("#triangle-metric", label="ECE")
    assert "best" in page.locator(".scale").inner_text()


def test_tables_are_copied_as_csv(page, runs):
    rows = copied(page, "Copy as CSV: How good each answer is")
    assert list(rows[0])[:5] == ["Group", "Answer", "Accuracy\u00a0%", "Accuracy\u00a0% std", "NLL"]
    middle = next(row for row in rows if (row["Group"], row["Answer"]) == ("line", "midpoint"))
    mean = sum(rows_of(runs[name])["[0.5]"].metrics["accuracy"] for name in ("line", "line1")) / 2
    assert float(middle["Accuracy\u00a0%"]) == pytest.approx(100 * mean, abs=0.051)
    rows = copied(page, "Copy every evaluated point as CSV")
    line = [row for row in rows if row["run"] == runs["line"].name and row["kind"] == "point"]
    assert len(line) == 21
    first = next(row for row in line if float(row["alpha"]) == 0.25)
    assert float(first["nll"]) == pytest.approx(rows_of(runs["line"])["[0.25]"].metrics["nll"], rel=1e-5)


@pytest.mark.parametrize("works", [True, False])
def test_copying_where_the_clipboard_is_refused(page, works):
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('refused')); }")
    page.evaluate("works => { if (!works) document.execCommand = () => false; }", works)
    button = page.get_by_role("button", name="Copy as CSV: How good each answer is")
    button.click()
    if works:
        sync_api.expect(button).to_have_text("Copied")
        assert not page.locator("dialog").is_visible()
    else:
        assert page.locator("#copy-text").input_value().startswith("Group,Answer,")
        page.get_by_role("button", name="Close").click()
        assert not page.locator("dialog").is_visible()
    page.evaluate("() => { delete navigator.clipboard.writeText; delete document.execCommand; }")


def test_light_and_dark(page):
    page.emulate_media(color_scheme="dark")
    page.get_by_role("button", name="Switch to light colours").wait_for()
    ground = "getComputedStyle(document.body).backgroundColor"
    axis = "document.querySelector('#along-figure .chart')._fullLayout.font.color"
    dark = page.evaluate(f"[{ground}, {axis}]")
    page.get_by_role("button", name="Switch to light colours").click()
    light = page.evaluate(f"[{ground}, {axis}]")
    assert light[0] == "rgb(255, 255, 255)"
    assert all(one != other for one, other in zip(light, dark, strict=True))
    page.get_by_role("button", name="Switch to dark colours").click()
    assert page.evaluate(f"[{ground}, {axis}]") == dark
    page.emulate_media(color_scheme="light")
    assert page.evaluate(ground) == dark[0]  # the reader's choice stays


def test_where_a_finger_scrolls_buttons_zoom(visit, report):
    phone = visit(report, viewport=PHONE, is_mobile=True, has_touch=True)
    button = phone.locator("#along-figure [data-title='Zoom in']")
    range_of = "document.querySelector('#along-figure .chart')._fullLayout.xaxis.range"
    before = phone.evaluate(range_of)
    button.tap()
    after = eventually(lambda: (now := phone.evaluate(range_of)) != before and now, phone)
    assert after[1] - after[0] < before[1] - before[0]


def test_it_is_never_wider_than_the_screen(visit, report):
    page = visit(report, viewport=PHONE, is_mobile=True, has_touch=True)
    for run in ("line, seed 0", "simplex (m = 3), seed 0"):
        page.select_option("#walk-run", label=run)
        assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    for details in page.locator("details").all():
        details.evaluate("element => { element.open = true; }")
    for width in (320, 390, 768):
        page.set_viewport_size({**PHONE, "width": width})
        eventually(lambda width=width: page.evaluate("document.documentElement.scrollWidth") == width, page)


ACCESSIBLE = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const wrong = [];
  const named = (element) => element.getAttribute("aria-label") || element.textContent.trim();
  for (const field of all("input, select, textarea"))
    if (!field.labels?.length && !field.getAttribute("aria-label")) wrong.push("no label: " + field.outerHTML);
  for (const button of all("button, a[href], summary")) if (!named(button)) wrong.push("no name: " + button.outerHTML);
  for (const image of all("img")) if (!image.getAttribute("alt")) wrong.push("no alt: " + image.outerHTML.slice(0, 80));
  for (const table of all("table")) if (!table.caption?.textContent) wrong.push("no caption");
  for (const head of all("th")) if (!head.getAttribute("scope")) wrong.push("no scope: " + head.outerHTML);
  for (const host of all("[role=group], [role=region], section, nav, fieldset"))
    if (!host.matches("[aria-label], [aria-labelledby], :has(> legend)")) wrong.push("unnamed: " + host.className);
  for (const name of ["aria-labelledby", "aria-describedby", "for"])
    for (const to of all(`[${name}]`).map((element) => element.getAttribute(name)))
      if (!document.getElementById(to)) wrong.push(name + " leads nowhere: " + to);
  const ids = all("main [id], header [id]").map((element) => element.id);
  ids.filter((id, at) => ids.indexOf(id) !== at).forEach((id) => wrong.push("twice: " + id));
  let level = 0;
  for (const heading of all("h1, h2, h3, h4, h5").filter((one) => one.checkVisibility())) {
    const next = Number(heading.tagName[1]);
    if (next > level + 1) wrong.push("skipped to " + heading.outerHTML);
    level = next;
  }
  if (all("h1").length !== 1) wrong.push("not one h1");
  if (document.documentElement.lang !== "en") wrong.push("no language");
  return wrong;
}"""


@pytest.mark.parametrize("run", ["line, seed 0", "simplex (m = 3), seed 0", "standard, seed 0"])
def test_it_can_be_read_by_a_screen_reader(page, run):
    page.select_option("#walk-run", label=run)
    for details in page.locator("details").all():
        details.evaluate("element => { element.open = true; }")
    assert page.evaluate(ACCESSIBLE) == []


def test_the_keyboard_reaches_everything_and_is_seen(visit, report):
    page = visit(report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        element = page.evaluate(
            "(({ id, tagName }) => [id || tagName, getComputedStyle(document.activeElement).outlineStyle])"
            "(document.activeElement)"
        )
        assert element[1] != "none", element
        reached.add(element[0])
    assert {"along-metric", "walk-run", "walk-alpha", "planes-plane", "SUMMARY", "INPUT"} <= reached


def test_names_from_outside_stay_text(visit, tmp_path):
    folders = [made_runs.run(tmp_path, "line", network=EVIL), made_runs.run(tmp_path, "simplex", network="mlp")]
    for folder in folders:
        record = Evaluation.load(folder)
        record.dataset["classes"] = [EVIL + str(index) for index in range(10)]
        record.environment["hardware"] = EVIL
        for plane in record.planes:
            plane.drawn[0] = type(plane.drawn[0])(EVIL, *list(vars(plane.drawn[0]).values())[1:])
            plane.corners[0] = type(plane.corners[0])(EVIL, 0.0, 0.0)
        record.save(folder)
    page = visit(write_report(folders, tmp_path / "evil.html"))
    assert page.locator("img[src='x']").count() == 0
    assert page.locator("#walk-strip li .truth").first.inner_text().startswith(f"is {EVIL}")
    assert EVIL in page.locator("#along-figure .legend").inner_text()
    assert EVIL in page.locator("#planes-figure .annotation-text").first.text_content()
    page.locator("#runs-details summary").first.click()
    assert page.locator("#runs-details td", has_text=EVIL).count() >= 2
    assert page.evaluate("document.scripts.length") == 3


def test_a_report_of_one_network_has_no_empty_sections(visit, runs, tmp_path):
    page = visit(write_report([runs["standard"]], tmp_path / "one.html"))
    names = page.locator("nav a").all_inner_texts()
    assert names == ["Summary", "Reliability", "Selective prediction", "Runs"]
    assert expected(rows_of(runs["standard"])["[0.0]"])["Accuracy"] == cells(page)["Accuracy"][0]


# Tables on a phone


def test_tables_scroll_in_their_own_box_and_say_so(visit, report):
    page = visit(report, viewport=PHONE, is_mobile=True, has_touch=True)
    box, hint = page.locator("#facts .scroll"), page.locator("#facts .hint")
    eventually(hint.is_visible, page)
    assert "Scroll sideways" in hint.inner_text()
    assert "more-right" in box.get_attribute("class")
    assert box.evaluate("box => getComputedStyle(box).boxShadow") != "none"
    first = page.locator("#facts tbody th:not([colspan])").first
    before = first.bounding_box()["x"]
    box.evaluate("box => { box.scrollLeft = box.scrollWidth; }")
    eventually(lambda: "more-left" in box.get_attribute("class"), page)
    assert "more-right" not in box.get_attribute("class")
    assert first.bounding_box()["x"] == pytest.approx(before, abs=1)  # the names stay
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    desktop = visit(report)
    assert desktop.locator("#facts .scroll").evaluate("one => one.scrollWidth <= one.clientWidth")
    assert not desktop.locator("#facts .hint").is_visible()


def test_a_page_of_members_has_no_walk_to_a_midpoint(visit, tmp_path):
    folders = [made_runs.run(tmp_path, "snapshot", vertices=3, epochs=30, seed=seed) for seed in (0, 1)]
    page = visit(write_report(folders, tmp_path / "members.html"))
    names = page.locator("nav a").all_inner_texts()
    assert names[:3] == ["Summary", "Single networks and ensembles", "Reliability"]
    assert page.locator("#walk-point option").all_inner_texts() == ["member 1", "member 2", "member 3"]
    assert page.locator("#walk-numbers thead th").all_inner_texts() == [
        "Metric",
        "member 1",
        "ensemble of 3 members",
    ]
    shown = page.inner_text("main").partition("Runs\n")[0].partition("Planes\n")
    assert not [word for word in ("midpoint", "random point", "Walk") if word in shown[0]]
