"""The page in a real browser: charts, colours, widths, keyboard, and that it asks for nothing."""

import made_runs
import pytest
from visiting import PHONE, chart, eventually, near, table

from subspaces.evaluation.evaluation import Evaluation
from subspaces.experiments.opening import opened
from subspaces.reports.page import write_report

EVIL = "</script><img src=x onerror=alert(1)>"


@pytest.fixture
def phone(visit, report_of_all):
    return visit(report_of_all, viewport=PHONE, is_mobile=True, has_touch=True)


def unfold(page) -> None:
    page.evaluate("document.querySelectorAll('details').forEach((element) => { element.open = true; })")


def test_the_metric_and_the_legend_change_the_chart(page, recorded):
    for figure, marks in (("walk-reliability", ".barlayer path"), ("planes-figure", ".contourlines path")):
        assert page.locator(f"#{figure} {marks}").count() > 2
    page.select_option("#along-metric", label="NLL")
    traces, layout = chart(page, "#along-figure")
    assert layout["yaxis"]["title"]["text"] == "NLL"
    (line,) = (trace for trace in traces if trace.get("name") == "line: at α")
    assert line["y"] == near(recorded.along("line")[1][..., 1].mean(0))
    hidden = page.locator("#along-figure .legend label:not(:has(:checked))").all_inner_texts()
    assert [text.strip() for text in hidden] == ["simplex (m = 3): ensemble of 6 random points"]
    assert hidden[0].strip() not in [trace.get("name") for trace in traces]
    swatch = page.locator("#along-figure .legend label", has_text="line: at α").locator("svg")
    red, green, blue = (int(line["line"]["color"][at : at + 2], 16) for at in (1, 3, 5))
    assert swatch.evaluate("svg => getComputedStyle(svg).color") == f"rgb({red}, {green}, {blue})"
    page.get_by_role("checkbox", name="line: at α", exact=True).focus()
    page.keyboard.press("Space")
    assert len(chart(page, "#along-figure")[0]) == len(traces) - 2  # the line and its band
    page.keyboard.press("Space")
    assert len(chart(page, "#along-figure")[0]) == len(traces)


def test_light_and_dark(page):
    look = "[getComputedStyle(document.body).backgroundColor, ...['#along-figure', '#walk-reliability'].map("
    look += "(figure) => document.querySelector(figure + ' .chart')._fullLayout.font.color)]"
    light = page.evaluate(look)
    page.emulate_media(color_scheme="dark")
    dark = eventually(lambda: (now := page.evaluate(look)) and now[2] != light[2] and now, page)
    assert light[0] == "rgb(255, 255, 255)"
    assert all(one != other for one, other in zip(light, dark, strict=True))


def test_a_phone_zooms_by_buttons_and_is_never_wider_than_its_screen(phone):
    range_of = "document.querySelector('#along-figure .chart')._fullLayout.xaxis.range"
    before = phone.evaluate(range_of)
    phone.locator("#along-figure [data-title='Zoom in']").tap()
    after = eventually(lambda: (now := phone.evaluate(range_of)) != before and now, phone)
    assert after[1] - after[0] < before[1] - before[0]
    unfold(phone)
    for run in ("line, seed 0", "simplex (m = 3), seed 0"):
        phone.select_option("#walk-run", label=run)
        for width in (320, 390, 768):
            phone.set_viewport_size({**PHONE, "width": width})
            eventually(lambda width=width: phone.evaluate("document.documentElement.scrollWidth") == width, phone)


ACCESSIBLE = """() => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const wrong = [];
  const named = (element) => element.getAttribute("aria-label") || element.textContent.trim();
  for (const field of all("input, select"))
    if (!field.labels?.length && !field.getAttribute("aria-label")) wrong.push("no label: " + field.outerHTML);
  for (const link of all("a[href], summary")) if (!named(link)) wrong.push("no name: " + link.outerHTML);
  for (const image of all("img")) if (!image.getAttribute("alt")) wrong.push("no alt: " + image.outerHTML.slice(0, 80));
  for (const table of all("table")) if (!table.caption?.textContent) wrong.push("no caption");
  for (const head of all("th")) if (!head.getAttribute("scope")) wrong.push("no scope: " + head.outerHTML);
  for (const host of all("[role=group], [role=region], section, nav, fieldset"))
    if (!host.matches("[aria-label], [aria-labelledby], :has(> legend)")) wrong.push("unnamed: " + host.className);
  const ids = all("main [id], header [id]").map((element) => element.id);
  ids.filter((id, at) => ids.indexOf(id) !== at).forEach((id) => wrong.push("twice: " + id));
  if (all("h1").length !== 1) wrong.push("not one h1");
  if (document.documentElement.lang !== "en") wrong.push("no language");
  return wrong;
}"""


def test_it_can_be_read_by_a_screen_reader(page):
    unfold(page)
    for run in ("line, seed 0", "simplex (m = 3), seed 0", "standard, seed 0"):
        page.select_option("#walk-run", label=run)
        assert page.evaluate(ACCESSIBLE) == []


def test_the_keyboard_reaches_everything_and_is_seen(visit, report_of_all):
    page = visit(report_of_all)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    reached = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            "(({ id, tagName }) => [id || tagName, getComputedStyle(document.activeElement).outlineStyle])"
            "(document.activeElement)"
        )
        if name == "BODY":  # after the last
            break
        assert outline != "none", name
        reached.add(name)
    assert {"along-metric", "walk-run", "walk-alpha", "planes-plane", "points", "SUMMARY", "INPUT"} <= reached


def test_names_from_outside_stay_text(visit, tmp_path):
    folders = [made_runs.run(tmp_path, "line", network=EVIL), made_runs.run(tmp_path, "simplex", network="mlp")]
    for folder in folders:
        record = Evaluation.load(folder)
        record.dataset["classes"] = [EVIL + str(index) for index in range(10)]
        record.environment["hardware"] = record.command = EVIL
        for plane in record.planes:
            plane.drawn[0] = type(plane.drawn[0])(EVIL, *list(vars(plane.drawn[0]).values())[1:])
            plane.corners[0] = type(plane.corners[0])(EVIL, 0.0, 0.0)
        record.save(folder)
    page = visit(write_report(opened(folders), tmp_path / "evil.html"))
    assert page.locator("img[src='x']").count() == 0
    assert page.locator("#walk-strip li .truth").first.inner_text().startswith(f"is {EVIL}")
    assert EVIL in page.locator("#along-figure .legend").inner_text()
    assert EVIL in page.locator("#planes-figure .annotation-text").first.text_content()
    page.locator("#runs-details summary").first.click()
    assert page.locator("#runs-details pre").first.inner_text() == EVIL
    assert page.locator("#runs-details td", has_text=EVIL).count() >= 2
    assert page.evaluate("document.scripts.length") == 3


def test_a_report_of_one_network_has_no_empty_sections(visit, recorded, tmp_path):
    page = visit(write_report(opened(recorded.runs["standard"][:1]), tmp_path / "one.html"))
    assert page.locator("nav a").all_inner_texts() == ["Summary", "Reliability", "Runs"]
    assert page.locator("#walk-alpha:visible, #walk-point:visible, #walk-triangle:visible").count() == 0


def test_a_page_of_members_has_no_walk_to_a_midpoint(visit, tmp_path):
    folders = [made_runs.run(tmp_path, "snapshot", vertices=3, epochs=30, seed=seed) for seed in (0, 1)]
    page = visit(write_report(opened(folders), tmp_path / "members.html"))
    assert page.locator("nav a").all_inner_texts()[:2] == ["Summary", "Reliability"]
    assert page.locator("#walk-point option").all_inner_texts() == ["member 1", "member 2", "member 3"]
    assert table(page, "#walk-numbers")["head"] == ["Metric", "member 1", "ensemble of 3 members"]
    shown = page.inner_text("main").partition("Runs\n")[0].partition("Planes\n")
    assert not [word for word in ("midpoint", "random point", "Walk") if word in shown[0]]
