"""What choosing a point is worth: lines on digits, each corruption a new domain, and choices on a few images of it.

At all 21 points of a line every test image has a loss, so that any choice on some images is arithmetic, and its gain
over the midpoint is known on all the others. Compared are the rule of `family.select` at several levels, and the best
point on the images at hand (a level of 1).

    python benchmarks/selection_levels.py [--seeds 3] [--epochs 20] [--draws 60] [--severity 3] [--json FILE]
"""

import argparse
import json
import tempfile
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from torch import Tensor

import subspaces as ss
from subspaces.core import search
from subspaces.core.search import Losses, grid
from subspaces.core.selection import criterion
from subspaces.evaluation.corruptions import CORRUPTIONS
from subspaces.evaluation.files import processor
from subspaces.experiments.evaluating.run_subject import run_subjects
from subspaces.experiments.evaluating.selection import corrupted
from subspaces.experiments.training import Execution, Run
from subspaces.experiments.training.batches import evaluation_batches, statistics_batches

EXAMPLES, LEVELS, MIDDLE = (20, 100, 300), (0.05, 0.3, 1.0), 10


def measured(run: Run, severity: int) -> dict[str, Tensor]:
    """Return the loss of every test image at every point, [points, n], for each corruption."""
    subject = run_subjects(None, Execution(device="cpu"))(run)
    about = (subject.recipe, subject.images_of, subject.execution)
    found = {}
    for name in CORRUPTIONS:
        images = evaluation_batches(corrupted(subject.images_of, name, severity), *about)
        losses = Losses(subject.family, images, criterion("nll"), statistics_batches(*about), 20, 0)
        found[name] = torch.stack([each.losses for each in grid(losses, 21, 0.05, 0)[0]])
    return found


def gains(losses: Tensor, examples: int, level: float, draws: int) -> list[float]:
    """Return what choices on so many images gain on all the others."""
    found = []
    for seed in range(draws):
        some, others = torch.randperm(losses.shape[1], generator=torch.Generator().manual_seed(seed)).tensor_split(
            [examples]
        )
        few, rest = losses[:, some], losses[:, others].mean(1)
        chosen = int(few.mean(1).argmin()) if level == 1 else search.safest(few, MIDDLE, level, 0)
        found.append(float(rest[MIDDLE] - rest[chosen]))
    return found


def main() -> None:
    """Train, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("seeds", 3), ("epochs", 20), ("draws", 60), ("severity", 3)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    domains_of: list[Tensor] = []
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {"device": "cpu", "show": "quiet", "epochs": given.epochs}
        for run in ss.train("digits-line", seeds=range(given.seeds), out=folder, **settings):
            domains_of += measured(run, given.severity).values()
    rows = []
    for examples in EXAMPLES:
        for level in LEVELS:
            each = [gains(losses, examples, level, given.draws) for losses in domains_of]
            moved = mean(gain != 0 for domain in each for gain in domain)
            means = [mean(domain) for domain in each]
            rows.append(
                {"examples": examples, "level": level, "gain": mean(means), "worst": min(means), "moved": moved}
            )
            print("{examples:4} examples, level {level:4}: {gain:+.4f}, worst {worst:+.4f}".format(**rows[-1]))
    best = mean(float(losses.mean(1)[MIDDLE] - losses.mean(1).min()) for losses in domains_of)
    print(f"best point on all images: {best:+.4f}, of {len(domains_of)} domains")
    if given.json:
        about = {"seeds": given.seeds, "epochs": given.epochs, "draws": given.draws, "severity": given.severity}
        where = {"processor": processor(), "torch": torch.__version__}
        given.json.write_text(json.dumps({**about, **where, "best": best, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
