"""Test accuracy of trained runs: of points of each family, of its ensembles, and of the single networks together.

    python benchmarks/accuracy.py RUNS --data DIR [--device cuda] [--json FILE]

RUNS is a folder of finished runs on one data set. Batch-norm statistics are made anew for every network.
"""

import argparse
import json
from pathlib import Path

import torch
from torch import nn

import subspaces as ss
from subspaces import data
from subspaces.training import Execution, Recipe, Run
from subspaces.training.batches import evaluation_batches, statistics_batches
from subspaces.training.engine import build_family

POINTS = (0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
PAIRS = ((0.0, 1.0), (0.1, 0.9), (0.2, 0.8), (0.3, 0.7))


def accuracy(network: nn.Module, recipe: Recipe, dataset: data.Dataset, execution: Execution) -> float:
    """Return the share of test images that the network gets right."""
    kind = torch.device(execution.device).type
    with torch.autocast(kind, torch.bfloat16, enabled=execution.precision == "bfloat16"), torch.no_grad():
        ss.recalibrate(network, statistics_batches(recipe, dataset, execution)).eval()
        batches = evaluation_batches(dataset.test, recipe, dataset, execution)
        hits = sum(int((network(x).argmax(1) == y).sum()) for x, y in batches)
    return hits / len(dataset.test)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path)
    parser.add_argument("--data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", type=Path, help="write the numbers to this file")
    options = parser.parse_args()
    execution = Execution(device=options.device).resolved()
    runs = [Run.open(folder) for folder in sorted(options.runs.iterdir()) if (folder / "config.json").is_file()]
    first = runs[0].recipe
    dataset = data.load(first.dataset, options.data, label_noise=first.label_noise)
    rows: dict[str, dict[str, float]] = {}
    singles: list[nn.Module] = []
    for run in runs:
        recipe = run.recipe
        family = ss.load(run.family_file, build_family(recipe, dataset, execution).midpoint()).to(execution.device)
        if recipe.method == "standard":
            singles.append(family.midpoint())
            rows[run.folder.name] = {"network": accuracy(family.midpoint(), recipe, dataset, execution)}
            continue
        row = {"midpoint": accuracy(family.midpoint(), recipe, dataset, execution)}
        if not family.shape.point:  # a line or a curve
            row |= {f"point {a:g}": accuracy(family.at(a), recipe, dataset, execution) for a in POINTS}
            for pair in PAIRS:
                row["ensemble {:g}, {:g}".format(*pair)] = accuracy(family.ensemble(pair), recipe, dataset, execution)
        rows[run.folder.name] = row
    if len(singles) > 1:
        together = {"ensemble": accuracy(ss.Ensemble(singles), first, dataset, execution)}
        rows[f"the {len(singles)} single networks"] = together
    for name, row in rows.items():
        print(name, *(f"{key}: {value:.2%}" for key, value in row.items()), sep="\n    ")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
