"""The tables of README.md and RESULTS.md, and every number of the README, are those of the files under results/."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import subspaces as ss
from subspaces.experiments.paper import FIGURES, SCALES, Claim
from subspaces.experiments.paper.measured import TAKEN

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
import paper_rows  # noqa: E402

import results  # noqa: E402

SMOKE = paper_rows.read("reproduce/smoke")


@pytest.mark.parametrize("name", results.DOCUMENTS)
def test_the_tables_are_those_of_the_files(name: str) -> None:
    text = (ROOT / name).read_text()
    blocks = list(results.BLOCK.finditer(text))
    assert text.count("<!-- table: ") == text.count("<!-- end -->") == len(blocks) > 0
    assert results.rewritten(text) == text, "call `make tables`"
    digit = re.search(r"\d\.(\d)", blocks[0][0])
    assert digit is not None
    at = blocks[0].start() + digit.start(1)
    changed = text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]
    assert results.rewritten(changed) == text != changed


def test_every_table_is_in_a_document() -> None:
    used = [block[1] for name in results.DOCUMENTS for block in results.BLOCK.findall((ROOT / name).read_text())]
    assert sorted(used) == sorted(results.TABLES)


def test_results_are_short() -> None:
    lines = (ROOT / "RESULTS.md").read_text().splitlines()
    assert len(" ".join(line for line in lines if not line.startswith(("|", "<!--"))).split()) <= 1200
    assert sum(line.startswith("![") for line in lines) <= 5


# The table of claims


def column(table: str, at: int) -> dict[str, str]:
    """A column of the table, by the claims."""
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:] if not line.startswith("| **")]
    return {cells[0]: cells[at] for cells in rows}


@pytest.mark.parametrize("scale", sorted(file.stem for file in (ROOT / "results" / "reproduce").glob("*.json")))
def test_every_verdict_of_a_file_is_in_the_table_once(scale: str) -> None:
    found = paper_rows.read(f"reproduce/{scale}")
    marks = "".join(column(results.claims({scale: found}), 1).values())
    verdicts = [claim["verdict"] for figure in found["figures"] for claim in figure["claims"]]
    assert {verdict: marks.count(mark) for verdict, mark in results.MARKS.items()} == {
        verdict: verdicts.count(verdict) for verdict in results.MARKS
    }


def laptop(*names: str) -> dict[str, Any]:
    """What `reproduce` writes of some figures: the first claim of each holds, the others do not."""
    figures = []
    for figure in (FIGURES[name] for name in names):
        for setup in {SCALES["laptop"].setup(each).name: SCALES["laptop"].setup(each) for each in figure.on}.values():
            verdicts = [
                {"claim": claim.sentence, "verdict": "does not" if i else "holds"}
                for i, claim in enumerate(figure.claims_on(setup))
            ]
            figures.append({"figure": figure.name, "setup": setup.name, "claims": verdicts})
    return {"seeds": [0, 1, 2], "figures": figures}


def test_the_table_has_what_a_file_has_and_no_more() -> None:
    table = results.claims({"smoke": SMOKE, "laptop": laptop("large-noise", "integral")})
    assert "| laptop: 3 seeds |" in table
    made = {claim: cell for claim, cell in column(table, 2).items() if cell != "–"}
    noise, integral = (list(FIGURES[name].claims) for name in ("large-noise", "integral"))
    expected = dict(zip(noise, "✓✗", strict=True)) | dict(zip(integral, ("✓ ✓", "✗ ✗", "✗ ✗"), strict=True))
    assert made == expected
    assert column(table, 1) == column(results.claims({"smoke": SMOKE, "laptop": {}}), 1)
    assert "| laptop: not made yet |" in results.claims({"smoke": SMOKE, "laptop": {}})


@pytest.mark.parametrize(
    ("formula", "figure", "file", "method", "answer"),
    [
        ("layerwise line > standard", "along", "comparison", "line, layerwise", "midpoint"),
        ("curve: 0.1 and 0.9 > standard", "ensembles-along", "comparison", "curve", "ensemble of 0.1 and 0.9"),
        ("simplex of 3 > standard", "simplex-midpoint", "comparison", "simplex (m = 3)", "midpoint"),
        ("line: at 0.2, 0.4, 0.6 > standard: at 0.2, 0.4, 0.6", "large-noise", "cifar10-noise", "line", "midpoint"),
        ("standard: runs > standard", "ensembles-along", "comparison", "standard", "ensemble of 2 runs"),
    ],
)
def test_claims_are_judged_by_the_differences_of_the_comparisons(
    formula: str, figure: str, file: str, method: str, answer: str
) -> None:
    entries = paper_rows.read(f"{file}/comparison")["entries"]
    (entry,) = (each for each in entries if (each["method"], each["answer"]) == (method, answer))
    found, expected = paper_rows.judged(Claim("", formula), figure), entry["metrics"]["accuracy"]["difference"]
    assert found is not None
    assert [found.difference.mean, found.difference.low, found.difference.high] == [
        expected[name] and pytest.approx(expected[name]) for name in ("mean", "low", "high")
    ]


def test_two_networks_and_what_was_not_measured_hold_no_verdict() -> None:
    claim = Claim("", "line: 0.1 and 0.9 > standard: runs − 0.005")
    assert paper_rows.judged(claim, "ensembles-along").verdict == "too noisy to say"
    assert paper_rows.judged(Claim("", "line, β = 2 > standard"), "along") is None
    assert paper_rows.judged(Claim("", "line > standard"), "betas") is None


def shifted(label: str, kinds: Sequence[str]) -> SimpleNamespace:
    """The runs of a method on some corruptions at severity 3, or all, as `Measured` has them."""
    rows = []
    for run in paper_rows.read("shift/runs")["runs"].values():
        if run["recipe"]["name"] == f"cifar10-{label}":
            own = {"seeds": (run["recipe"]["seed"],), "kind": "point", "severity": 3}
            name = "midpoint" if "midpoint" in run["unchanged"] else "network"
            some = [each for each in run["shifts"] if each["severity"] == 3]
            for each in (each for each in some if not kinds or each["name"] in kinds):
                along = {float(alpha): value for alpha, value in each.get("along", {}).items()}
                for alpha, value in {**along, 0.5: each["answers"][name]["accuracy"]}.items():
                    rows.append({**own, "role": "along", "alpha": alpha, "data": each["name"], "accuracy": value})
            for each in run["answers"]:
                if each["kind"] == "point" and (each["role"] == "midpoint" or each["alphas"][0] in along):
                    alpha = 0.5 if each["role"] == "midpoint" else each["alphas"][0]
                    accuracy = each["metrics"]["accuracy"]
                    rows.append({**own, "role": "along", "alpha": alpha, "data": "test", "accuracy": accuracy})
    return SimpleNamespace(frame=pd.DataFrame(rows))


@pytest.mark.parametrize(
    ("what", "metric", "kinds"),
    [
        ("change", "change", ()),
        ("share of corruptions", "share", ()),
        ("range on clean images", "accuracy", ()),
        ("range on corrupted images", "accuracy", ("snow", "contrast")),
    ],
)
def test_corrupted_images_are_judged_as_by_the_package(what: str, metric: str, kinds: Sequence[str]) -> None:
    found = SimpleNamespace(group=lambda label: shifted(label.replace("layerwise line", "line-layerwise"), kinds))
    for label in ("line", "layerwise line"):
        known = paper_rows.single_runs("shift/runs")[f"{label}: {what}", metric]
        assert known == pytest.approx(TAKEN[what](found, label))


# The README's sentences


def percent(number: float, digits: int = 1) -> str:
    return f"{100 * number:.{digits}f}"


LAYERWISE = ("simplex (m = 3), layerwise", "midpoint")


def sentences() -> Iterator[str]:
    rows = paper_rows.read("cifar10-noise/comparison")
    epochs = rows["entries"][0]["recipe"]["epochs"]
    yield f"{percent(rows['label_noise'], 0)} % random labels (cResNet20, {epochs} epochs"
    means = {(each["method"], each["answer"]): each["metrics"]["accuracy"]["mean"] for each in rows["entries"]}
    one, line, simplex = (percent(means[key]) for key in (("standard", "network"), ("line", "midpoint"), LAYERWISE))
    yield f"one network has {one} % right, the line's midpoint {line} %, and that of a layerwise simplex {simplex} %"
    steps = paper_rows.read("speed/step-cpu")["rows"]
    line, simplex = (f"{steps[name]['ratio']:.2f}" for name in ("line", "simplex 6"))
    yield f"it takes {line} of a plain one's time for a line and {simplex} for a simplex of six"
    yield f"on 10,000 images of CIFAR-10, {SCALES['laptop'].setup('cifar10').standard.epochs} epochs"


def words(text: str) -> str:
    return " ".join(text.split())


def test_every_number_of_the_readme_was_measured() -> None:
    text = re.sub(r"```.*?```", "", results.BLOCK.sub("", (ROOT / "README.md").read_text()), flags=re.DOTALL)
    text = words(text)
    for sentence in sentences():
        assert words(sentence) in text
        text = text.replace(words(sentence), "")
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    assert re.findall(r"\d[\d,]*\.\d+|\d+(?= %)|\d+(?= m?s\b)", text) == []


# Files


def test_every_figure_has_results_and_verdicts_follow_from_intervals() -> None:
    assert [each["figure"] for each in SMOKE["figures"]] == list(FIGURES)
    every = [*SMOKE["figures"], *paper_rows.read("reproduce/laptop").get("figures", ())]
    for claim in (claim for each in every for claim in each["claims"]):
        low, high = (claim["difference"][name] for name in ("low", "high"))
        assert claim["verdict"] == ("holds" if low > 0 else "does not" if high < 0 else "too noisy to say")


def test_run_folders_are_summed_up(tmp_path: Path) -> None:
    (run,) = ss.train("digits-line", seeds=[3], epochs=1, out=tmp_path, device="cpu", show="quiet")
    ss.evaluate(run, device="cpu", progress=False)
    out = tmp_path / "summary.json"
    subprocess.run([sys.executable, ROOT / "docs" / "summary.py", run.folder, "-o", out], check=True)
    (found,) = json.loads(out.read_text())["runs"].values()
    measured = json.loads((run.folder / "evaluation.json").read_text())["rows"]
    assert found["recipe"]["seed"] == 3
    assert found["seconds"] > 0
    assert [a["metrics"] for a in found["answers"]] == [
        {name: pytest.approx(value, rel=1e-6) for name, value in row["metrics"].items()} for row in measured
    ]
