"""What choosing a point for shifted data gives: chosen on a few corrupted test images, measured on all others.

Of a line or curve every point of the grid is asked once about each corrupted set. Then, many times, some of its images
are drawn and a point is chosen on them: by the rule of `family.select`, with labels (nll) and without (entropy), and
for contrast the point that is best on them, without a rule. What counts is the choice against the midpoint on the
images that were not drawn; with hindsight, the best point of the grid on those. A simplex, and one point for each layer
(--per layer), choose by gradient: `family.select` itself is called, once for each set and number of images.

    python benchmarks/selection.py RUN... --data DIR [--corruptions fog snow] [--severities 3 5] [--json FILE]
"""

import argparse
import itertools
import json
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subspaces.core import randomness, search
from subspaces.evaluation.corruptions import CORRUPTIONS
from subspaces.evaluation.points import GRID, kind
from subspaces.evaluation.predictor import Predictor
from subspaces.evaluation.settings import Corruptions
from subspaces.experiments.evaluating import selection
from subspaces.experiments.evaluating.run_subject import RunSubject, run_subjects
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.runs import Run

USUAL = [each.name for each in CORRUPTIONS.values() if each.group != "extra"]
LEVEL = 0.05
Losses = dict[str, Tensor]  # nll, entropy and error of each point and image, [points, n]


def losses_of(subject: RunSubject, predictor: Predictor, batches: Any) -> Losses:
    """Return how good every point is for every image."""
    found: dict[str, list[Tensor]] = {"nll": [], "entropy": [], "error": []}
    for outputs in predictor.outputs(GRID, batches):
        logs = torch.stack([subject.task.combine([one], "probabilities").logs for one in outputs.members]).double()
        right = outputs.target[None, :, None].expand(len(logs), -1, 1)
        found["nll"].append(-logs.gather(2, right).squeeze(2).cpu())
        found["entropy"].append(-(logs.exp() * logs).sum(2).cpu())
        found["error"].append((logs.argmax(2) != outputs.target).double().cpu())
    return {name: torch.cat(parts, 1) for name, parts in found.items()}


def best(losses: Tensor, middle: int, level: float, seed: int) -> int:
    """Return the best point, as nobody should choose it."""
    return int(losses.mean(1).argmin())


def drawn(losses: Losses, middle: int, count: int, draws: int) -> Iterator[dict[str, Any]]:
    """Yield what each way to choose gives on the other images, over many draws of so many."""
    ways: dict[str, tuple[str, Callable[[Tensor, int, float, int], int]]] = {
        "nll": ("nll", search.safest),
        "entropy, no labels": ("entropy", search.safest),
        "nll, without the rule": ("nll", best),
    }
    n = losses["nll"].shape[1]
    for draw in range(draws):
        order = randomness.permutation(randomness.stream(draw, "selection", 2), n)
        some, others = order[:count], order[count:]
        on = {name: each[:, others].mean(1) for name, each in losses.items()}
        ideal = int(on["nll"].argmin())
        for way, (by, choose) in ways.items():
            at = choose(losses[by][:, some], middle, LEVEL, draw)
            yield {"by": way, "examples": count, "draw": draw, "at": at} | gains(on, middle, at)
        yield {"by": "hindsight", "examples": count, "draw": draw, "at": ideal} | gains(on, middle, ideal)


def gains(on: Losses, middle: int, at: int) -> dict[str, float]:
    """Return how much a point is better than the midpoint: in accuracy, and in nll."""
    return {
        "accuracy": float(on["error"][middle] - on["error"][at]),
        "nll": float(on["nll"][middle] - on["nll"][at]),
        "moved": float(at != middle),
        "worse": float(on["nll"][at] > on["nll"][middle]),
    }


def on_a_grid(subject: RunSubject, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield all draws of a line or curve, on every set."""
    predictor = subject.predictor([], options.statistics_batches)
    middle = list(GRID).index(0.5)
    for each in subject.shifted(Corruptions(options.corruptions, options.severities)):
        losses = losses_of(subject, predictor, each.batches() if each.batches else each.name)
        about = {"corruption": each.name, "severity": each.severity}
        for count in options.examples:
            for row in drawn(losses, middle, count, options.draws):
                yield about | row


def by_gradient(subject: RunSubject, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield what `family.select` chooses by gradient, once for each set and number of images."""
    for name, severity in itertools.product(options.corruptions, options.severities):
        images = selection.corrupted(subject.images_of, name, severity, subject.execution.device)
        for count, by in itertools.product(options.examples, options.by):
            how = {"by": by, "per": options.per, "folds": 0}
            chosen, measured = selection.select(subject, images, count, options.statistics_batches, 0, how)
            rows = {row.name: row for row in measured}
            middle, ideal = rows["midpoint"], rows["best"]
            for way, row in ((f"{by}{', no labels' * (by == 'entropy')}", rows["chosen"]), ("hindsight", ideal)):
                gain = {"accuracy": row.accuracy - middle.accuracy, "nll": middle.nll - row.nll}
                moved = chosen.moved if way != "hindsight" else row.alpha != middle.alpha
                about = {"corruption": name, "severity": severity, "by": way, "examples": count, "draw": 0}
                yield about | gain | {"moved": float(moved), "worse": float(gain["nll"] < 0)}


def summed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return means by the way of choosing and the number of images, with the worst and the best corruption."""
    found = []
    for by, count in dict.fromkeys((row["by"], row["examples"]) for row in rows):
        some = [row for row in rows if (row["by"], row["examples"]) == (by, count)]
        entry: dict[str, Any] = {"by": by, "examples": count, "choices": len(some)}
        entry |= {name: statistics.fmean(row[name] for row in some) for name in ("accuracy", "nll", "moved", "worse")}
        names = dict.fromkeys(row["corruption"] for row in some)
        entry["accuracy_by_corruption"] = {
            name: statistics.fmean(row["accuracy"] for row in some if row["corruption"] == name) for name in names
        }
        found.append(entry)
    return found


def main() -> None:
    """Measure the runs and write what came out as it comes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data", default="data", help="the folder with the data sets")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--corruptions", nargs="+", default=USUAL)
    parser.add_argument("--severities", nargs="+", type=int, default=[1, 3, 5])
    parser.add_argument("--examples", nargs="+", type=int, default=[20, 100, 500])
    parser.add_argument("--draws", type=int, default=20)
    parser.add_argument("--per", default="network", choices=("network", "layer"))
    parser.add_argument("--by", nargs="+", default=["nll", "entropy"], help="of a choice by gradient")
    parser.add_argument("--statistics-batches", type=int, default=100)
    parser.add_argument("--json", type=Path, help="add what was found to this file")
    options = parser.parse_args()
    subject_of = run_subjects(options.data, Execution(device=options.device))
    found = json.loads(options.json.read_text()) if options.json and options.json.is_file() else []
    for folder in options.runs:
        subject, start = subject_of(Run.open(folder)), time.perf_counter()
        gridded = kind(subject.shape) == "interval" and options.per == "network"
        rows = list((on_a_grid if gridded else by_gradient)(subject, options))
        entry = {
            "run": subject.name,
            "recipe": subject.recipe.name,
            "seed": subject.recipe.seed,
            "per": options.per,
            "search": "grid" if gridded else "gradient",
            "seconds": time.perf_counter() - start,
            "options": {name: value for name, value in vars(options).items() if name not in ("runs", "data", "json")},
            "environment": subject.environment,
            "choices": summed(rows),
        }
        found = [one for one in found if (one["run"], one["per"]) != (entry["run"], entry["per"])] + [entry]
        subject.release()
        print(f"{subject.name}, per {options.per}, {entry['seconds']:.0f} s")
        for line in entry["choices"]:
            print(
                f"  {line['by']:24} {line['examples']:4}  accuracy {100 * line['accuracy']:+.2f} points  "
                f"nll {line['nll']:+.4f}  moved {line['moved']:.2f}  worse {line['worse']:.2f}",
                flush=True,
            )
        if options.json:
            options.json.parent.mkdir(parents=True, exist_ok=True)
            options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
