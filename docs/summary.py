"""Sum up run folders in one file: `python docs/summary.py FOLDER... -o results/STUDY/summary.json`.

What stays of a run is its recipe, where and when it ran, how its training ended and how
long it took, the metrics of all its answers and the checks of its batch-norm statistics; of shifted data and outliers,
the metrics of the answers and the accuracy of the points along a line; of an `ensembles.json` beside the folders, the
metrics of runs that answer together.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subspaces.evaluation.classification import DISTANCES
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.rows import ABOUT
from subspaces.experiments.opening import opened
from subspaces.experiments.training import Run

if TYPE_CHECKING:
    import pandas as pd

ANSWER = ("kind", "role", "alphas", "average", "split", "count", "metrics", "diversity")
OTHERS = (*ABOUT, "temperature", *(each.name for each in DISTANCES))  # columns that are no metrics


def read(file: Path) -> dict[str, Any]:
    """Return the content of a JSON file; nothing if it is not there."""
    found: dict[str, Any] = json.loads(file.read_text()) if file.is_file() else {}
    return found


def rounded(value: Any) -> Any:
    """Return the same with seven digits of each number, which is more than any table shows."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [rounded(each) for each in value]
    return float(f"{value:.7g}") if isinstance(value, float) else value


def of_run(folder: Path) -> dict[str, Any]:
    """Return what stays of a run."""
    run = Run.open(folder)
    found: dict[str, Any] = {"recipe": run.recipe.to_dict(), "starts": run.starts(), "result": run.result}
    if not (folder / "evaluation.json").is_file():
        return found
    (evaluation,) = opened(run)
    rows = [{**asdict(each), "split": each.data} for each in evaluation.rows if not each.group]
    found["evaluated"] = {"environment": evaluation.environment, "statistics": evaluation.statistics}
    found["seconds"] = evaluation.training.seconds if evaluation.training else None
    found["answers"] = [{key: row[key] for key in ANSWER if row[key] is not None} for row in rows]
    frame = evaluation.frame
    outliers = frame["group"] == "outliers"
    sets = {"shifts": frame[(frame["group"] != "") & ~outliers], "outliers": frame[outliers]}
    for name, some in sets.items():
        if len(some):
            groups = some.groupby(["data", "severity", "group", "source", "count"], sort=False)
            found[name] = [beside(key, part, evaluation) for key, part in groups]
            found["unchanged"] = metrics_of(frame[frame["data"] == "test"], evaluation)
    return found


def metrics_of(rows: "pd.DataFrame", evaluation: Evaluation) -> dict[str, Any]:
    """Return the metrics of each answer, by its words."""
    words = {each.name: each.words for each in evaluation.answers}
    names = [name for name in rows.columns if name not in OTHERS and not name.startswith("scaled_")]
    answers = rows[rows["answer"] != ""]
    return {
        words[answer]: {name: float(row[name]) for name in names if row[name] == row[name]}
        for answer, (_, row) in zip(answers["answer"], answers.iterrows(), strict=True)
    }


def beside(key: tuple[Any, ...], rows: "pd.DataFrame", evaluation: Evaluation) -> dict[str, Any]:
    """Return what stays of a set of shifted examples, or of outliers."""
    name, severity, group, source, count = key
    about = {"name": name, "source": source, "count": int(count), "answers": metrics_of(rows, evaluation)}
    if group == "outliers":
        return about
    along = rows[(rows["role"] == "along") & (rows["kind"] == "point")]
    points = {f"{alpha:g}": float(value) for alpha, value in zip(along["alpha"], along["accuracy"], strict=True)}
    return {**about, "severity": int(severity), "group": group, **({"along": points} if points else {})}


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
        "ensembles": [of_ensemble({"key": entry["key"], **entry["value"]}) for entry in together],
    }
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(rounded(summary), indent=1) + "\n")


if __name__ == "__main__":
    main()
