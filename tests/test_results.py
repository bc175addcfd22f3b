"""The tables of the documents, and every number of the README, are those of the files under results/."""

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

import subspaces as ss
from subspaces.experiments.paper import FIGURES

ROOT = Path(__file__).parent.parent
_spec = importlib.util.spec_from_file_location("tables", ROOT / "docs" / "tables.py")
tables: Any = importlib.util.module_from_spec(_spec)  # type: ignore[arg-type]
_spec.loader.exec_module(tables)  # type: ignore[union-attr]


@pytest.mark.parametrize("name", tables.DOCUMENTS)
def test_the_tables_are_those_of_the_files(name: str) -> None:
    text = (ROOT / name).read_text()
    blocks = list(tables.BLOCK.finditer(text))
    assert text.count("<!-- table: ") == text.count("<!-- end -->") == len(blocks) > 0
    assert tables.rewritten(text) == text, "call `make tables`"
    digit = re.search(r"\d\.(\d)", blocks[0][0])
    assert digit is not None
    at = blocks[0].start() + digit.start(1)
    changed = text[:at] + str((int(text[at]) + 1) % 10) + text[at + 1 :]
    assert tables.rewritten(changed) == text != changed


def test_every_table_is_in_a_document() -> None:
    used = [block[1] for name in tables.DOCUMENTS for block in tables.BLOCK.findall((ROOT / name).read_text())]
    assert sorted(used) == sorted(tables.TABLES)


# The README's sentences


def percent(number: float, digits: int = 1) -> str:
    return f"{100 * number:.{digits}f}"


def demo() -> dict[str, list[Any]]:
    return {
        "network": tables.answers("digits-standard"),
        "midpoint": tables.answers("digits-simplex-layerwise"),
        "vertices": tables.vertices("digits-simplex-layerwise"),
        "stopped": tables.answers("digits-early-stopping"),
    }


def sentences() -> Iterator[str]:
    yield f"cResNet20, {tables.read('comparison/comparison')['entries'][0]['recipe']['epochs']} epochs"
    rows = tables.read("cifar10-noise/comparison")
    yield f"with {percent(rows['label_noise'], 0)} % random training labels"
    means = {(each["method"], each["answer"]): each["metrics"]["accuracy"]["mean"] for each in rows["entries"]}
    gain = means["simplex (m = 3), layerwise", "midpoint"] - means["standard", "network"]
    yield f"has {percent(gain, 0)} of 100 test images more right"
    right = {name: percent(mean(each["accuracy"] for each in rows)) for name, rows in demo().items()}
    yield f"the midpoint of a layerwise simplex has {right['midpoint']} % right"
    yield f"one network {right['network']} % and the simplex's own vertices {right['vertices']} %"
    yield f"Stopping early by clean held-out images is better still there ({right['stopped']} %)"
    engine = tables.read("speed/engine-h200")["rows"]
    yield f"takes {engine['standard']['ms']:.2f} ms for a whole standard step"
    yield f"{engine['line']['ratio']:.2f} of that for a line and {engine['simplex 6']['ratio']:.2f} for six vertices"


def words(text: str) -> str:
    return " ".join(text.split())


def test_every_number_of_the_readme_was_measured() -> None:
    text = re.sub(r"```.*?```", "", tables.BLOCK.sub("", (ROOT / "README.md").read_text()), flags=re.DOTALL)
    text = words(text)
    for sentence in sentences():
        assert words(sentence) in text
        text = text.replace(words(sentence), "")
    text = re.sub(r"`[^`]*`|\]\([^)]*\)", "", text)
    assert re.findall(r"\d[\d,]*\.\d+|\d+(?= %)|\d+(?= m?s\b)", text) == []


# Files


def test_every_figure_has_results_and_verdicts_follow_from_intervals() -> None:
    found = tables.read("reproduce/smoke")
    assert [each["figure"] for each in found["figures"]] == list(FIGURES)
    for claim in (claim for each in found["figures"] for claim in each["claims"]):
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
