"""Every number in the README and in RESULTS.md is one that was measured: the files under results/ have it."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sentences import ROOT, SENTENCES, compared, demo, minutes, tables

import subspaces as ss
from subspaces.experiments.studies.catalogue import EXHIBITS

# What is no result: settings (40 % noise, α, learning rates, …), versions, the confidence of an interval.
SETTINGS = {
    "README.md": set(),
    "RESULTS.md": {"0.999", "0.1", "0.02", "0.025", "0.3", "40", "60", "95"},
}


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", tables.DOCUMENTS)
def test_the_tables_are_those_of_the_files(name: str) -> None:
    text = (ROOT / name).read_text()
    assert tables.BLOCK.search(text)
    assert tables.rewritten(text) == text, "call `make tables`"
    assert text.count("<!-- table: ") == text.count("<!-- end -->") == len(tables.BLOCK.findall(text))


def test_every_table_stands_somewhere() -> None:
    used = [block[1] for name in tables.DOCUMENTS for block in tables.BLOCK.findall((ROOT / name).read_text())]
    assert sorted(used) == sorted(tables.TABLES)


@pytest.mark.parametrize("name", tables.DOCUMENTS)
def test_a_changed_number_in_a_table_is_found(name: str) -> None:
    text = (ROOT / name).read_text()
    for block in tables.BLOCK.finditer(text):
        digit = re.search(r"\d\.(\d)", block[0])
        assert digit is not None
        at = block.start() + digit.start(1)
        changed = text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]
        assert tables.rewritten(changed) == text != changed


def test_a_changed_number_in_a_file_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    read = tables.read

    def other(name: str) -> Any:
        content = read(name)
        if name == "speed/step-cpu":
            content["rows"]["line"]["ratio"] += 0.1
        return content

    monkeypatch.setattr(tables, "read", other)
    assert [n for n in tables.DOCUMENTS if tables.rewritten((ROOT / n).read_text()) != (ROOT / n).read_text()] == [
        "README.md",
        "docs/performance.md",
    ]


@pytest.mark.parametrize(("name", "sentence"), [(name, each) for name, found in SENTENCES.items() for each in found])
def test_what_a_sentence_says_is_in_the_files(name: str, sentence: str) -> None:
    assert words(sentence) in words((ROOT / name).read_text())


@pytest.mark.parametrize("name", SETTINGS)
def test_no_number_has_no_source(name: str) -> None:
    text = re.sub(r"```.*?```", "", tables.BLOCK.sub("", (ROOT / name).read_text()), flags=re.DOTALL)
    text = words(re.sub(r"`[^`]*`|\]\([^)]*\)", "", text))
    for sentence in SENTENCES[name]:
        text = text.replace(words(re.sub(r"`[^`]*`", "", sentence)), "")
    numbers = re.findall(r"\d[\d,]*\.\d+|\d+(?= %)|\d+(?= m?s\b)", text)
    assert set(numbers) - SETTINGS[name] == set()


def test_what_is_said_of_the_demo_holds() -> None:
    found = demo()
    for midpoint, network in zip(found["midpoint"], found["network"], strict=True):
        assert midpoint["accuracy"] > network["accuracy"]
        assert midpoint["ece"] < network["ece"]
    assert minutes("demo/summary") < 0.5


def test_what_is_said_of_midpoints_on_cifar10_holds() -> None:
    entries = tables.read("comparison/comparison")["entries"]
    by_name = {(e["method"], e["answer"]): {k: v["mean"] for k, v in e["metrics"].items()} for e in entries}
    midpoints = {method: metrics for (method, answer), metrics in by_name.items() if answer == "midpoint"}
    others = [by_name["standard", "network"], by_name["swa-cyclic (m = 3)", "average of 3"]]
    assert len(midpoints) == 5
    for method, metrics in midpoints.items():
        assert metrics["ece"] < min(other["ece"] for other in others)
        assert metrics["nll"] < min(other["nll"] for other in others)
        assert (metrics["accuracy"] > others[0]["accuracy"]) == ("layerwise" in method)
    gains = {name: compared(*name)["difference"]["values"] for name in by_name if name[1] == "midpoint"}
    assert min(gains["line, layerwise", "midpoint"]) > 0
    assert (
        0
        < compared("standard", "ensemble of 2 runs")["mean"] - compared("line", "ensemble of 0.1 and 0.9")["mean"]
        < 0.005
    )


def test_what_is_said_of_label_noise_holds() -> None:
    lines = [line for line in tables.read("noise/noise")["lines"] if line["label_noise"]]
    for level in (0.2, 0.4, 0.6):
        here = {
            (line["method"], line["answer"]): line["metrics"]["accuracy"]["mean"]
            for line in lines
            if line["label_noise"] == level
        }
        midpoints = {method: value for (method, answer), value in here.items() if answer == "midpoint"}
        assert min(midpoints.values()) > here["standard", "network"]
        for plain in ("line", "simplex (m = 3)"):
            assert midpoints[f"{plain}, layerwise"] > midpoints[plain]
        assert midpoints["simplex (m = 3)"] > midpoints["line"]
        assert (here["early-stopping", "network"] == max(here.values())) == (level >= 0.4)
        assert (here["label smoothing", "network"] > max(midpoints.values())) == (level < 0.6)


def test_what_is_said_of_starts_holds() -> None:
    found = tables.rows_of("starts", "label_noise", "shape", "start")
    right = {key: sum(row["accuracy"] for row in rows) / len(rows) for key, rows in found.items()}
    for data, noise, shape in {key[:3] for key in right}:
        alone, *offsets = (
            right[data, noise, shape, start]
            for start in ("independent", *(f"one point, offset {offset}" for offset in (0, 0.03, 0.1, 0.3)))
        )
        assert offsets[2] >= alone - 1e-9
        if data == "mnist" or noise:
            assert min(offsets) > alone
        else:
            assert max(offsets) - min(alone, *offsets) < 0.005


def test_every_exhibit_stands_among_the_results_and_its_verdicts_follow_from_its_intervals() -> None:
    found = tables.read("reproduce/smoke")
    assert [each["exhibit"] for each in found["exhibits"]] == list(EXHIBITS)
    for claim in (claim for each in found["exhibits"] for claim in each["claims"]):
        low, high = (claim["difference"][name] for name in ("low", "high"))
        assert claim["verdict"] == ("holds" if low > 0 else "does not" if high < 0 else "too noisy to say")
    assert found["scale"] == "smoke"
    assert "not the paper's setting" in (ROOT / "results/reproduce/smoke.md").read_text()


def test_results_are_summaries() -> None:
    files = [file for file in (ROOT / "results").rglob("*") if file.is_file()]
    assert {file.suffix for file in files} == {".json", ".md", ".png"}
    run = {"config.json", "environment.json", "evaluation.json", "result.json"}
    assert [file for file in files if file.name in run] == []


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
