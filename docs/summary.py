"""Sum up run folders in one file: `python docs/summary.py FOLDER... -o results/STUDY/summary.json`.

What stays of a run is its recipe, where and when it ran, how its training ended and how
long it took, the metrics of all its answers and the checks of its batch-norm statistics; of shifted data and outliers,
the metrics of the answers and the accuracy of the points along a line; of an `ensembles.json` beside the folders, the
metrics of runs that answer together.
"""

import argparse
import json
from pathlib import Path
from typing import Any

RUN = ("config.json", "environment.json", "result.json", "evaluation.json")
ANSWER = ("kind", "role", "alphas", "average", "split", "count", "metrics", "diversity")


def read(file: Path) -> dict[str, Any]:
    """Return what a file says, without its seal; nothing if it is not there."""
    content = json.loads(file.read_text()) if file.is_file() else {}
    return {key: value for key, value in content.items() if key != "seal"}


def rounded(value: Any) -> Any:
    """Return the same with seven digits of each number, which is more than any table shows."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def rates(folder: Path) -> list[float]:
    """Return the images a second of each epoch."""
    return [json.loads(line)["images_per_second"] for line in (folder / "log.jsonl").read_text().splitlines()]


def of_run(folder: Path) -> dict[str, Any]:
    """Return what stays of a run."""
    recipe, environment, result, evaluation = (read(folder / name) for name in RUN)
    found = {"recipe": recipe, "starts": environment["starts"], "result": result}
    if evaluation:
        found["evaluated"] = {key: evaluation[key] for key in ("environment", "statistics", "checks")}
        found["seconds"] = sum(evaluation["statistics"]["images"] / each for each in rates(folder))
        rows = [{**row, "split": row["data"]} for row in evaluation["rows"]]
        own = [row for row in rows if not row["group"]]
        found["answers"] = [{key: row[key] for key in ANSWER if row[key] is not None} for row in own]
        for name in ("shifts", "outliers"):
            sets: dict[Any, dict[str, Any]] = {}
            for row in rows:
                if row["group"] and (row["group"] == "outliers") == (name == "outliers"):
                    about = {"name": row["data"], **{key: row[key] for key in ("severity", "group", "source", "count")}}
                    sets.setdefault(json.dumps(about), {**about, "rows": []})["rows"].append(row)
            if sets:
                found[name] = [beside(each, evaluation["answers"]) for each in sets.values()]
                found["unchanged"] = beside({"rows": own}, evaluation["answers"])["answers"]
    return found


def beside(measured: dict[str, Any], answers: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what stays of a set of shifted examples, or of outliers."""
    found: dict[str, Any] = {
        key: measured[key] for key in ("name", "severity", "group", "source", "count") if key in measured
    }
    of_answer = {(each["role"], str(each["alphas"]), each["average"]): each["words"] for each in answers}
    words = [of_answer.get((row["role"], str(row["alphas"]), row["average"])) for row in measured["rows"]]
    found["answers"] = {word: row["metrics"] for word, row in zip(words, measured["rows"], strict=True) if word}
    along = {
        row["alphas"][0]: row["metrics"]
        for row in measured["rows"]
        if row["role"] == "along" and row["kind"] == "point"
    }
    if along and "severity" in found:
        found["along"] = {f"{alpha:g}": metrics["accuracy"] for alpha, metrics in along.items()}
    return found


def of_ensemble(entry: dict[str, Any]) -> dict[str, Any]:
    """Return what stays of runs that answer together."""
    return {"runs": entry["key"]["runs"], **{key: entry[key] for key in ("environment", "images", "metrics")}}


def main() -> None:
    """Read the folders and write the summary."""
    parser = argparse.ArgumentParser(description="Sum up run folders in one file.")
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("-o", "--out", required=True, type=Path)
    parser.add_argument("--ensembles", type=Path, default=Path("none"), help="an ensembles.json")
    arguments = parser.parse_args()
    together = read(arguments.ensembles).get("measured", [])
    summary = {
        "runs": {folder.name: of_run(folder) for folder in sorted(arguments.folders)},
        "ensembles": [of_ensemble(entry) for entry in together],
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(rounded(summary), indent=1) + "\n")


if __name__ == "__main__":
    main()
