"""Judge claims of the paper by what was measured with its networks."""

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from statistics import fmean
from typing import Any

from subspaces.experiments.paper import Claim, Judgement

RESULTS = Path(__file__).parent.parent / "results"
METHODS = {  # of comparisons: what claims call them
    **{name: (name,) for name in ("standard", "line", "curve", "integral")},
    "line, layerwise": ("layerwise line",),
    "simplex (m = 3)": ("simplex", "simplex of 3"),
    "simplex (m = 3), layerwise": ("layerwise simplex", "layerwise simplex of 3"),
    "swa-cyclic (m = 3)": ("cyclic SWA of 3",),
    "swa-constant (m = 3)": ("constant SWA of 3",),
    "snapshot (m = 6)": ("snapshot",),
}
ANSWERS = {
    **dict.fromkeys(("midpoint", "network", "average of 3"), ""),
    "ensemble of 0.1 and 0.9": ": 0.1 and 0.9",
    "ensemble of 6 random points": ": random",
    "ensemble of 6 members": ": vertices",
    "ensemble of 2 runs": ": runs",
}
Values = Mapping[tuple[str, str], Mapping[int, float]]
"""By expression (see `Measured.value`) and metric: a number for each seed."""


NOTES = {  # by figure: how what was measured differs from what it is about
    "label-noise": "40 % noise alone; simplexes of 3, not 6",
    "corrupted-along": "CIFAR-10, not ImageNet; severity 3 alone",
    "six-models": "a simplex of 3, not 6",
    "large-noise": "CIFAR-10, not ImageNet; 40 % noise alone",
    "integral": "LeNet alone; 3 seeds",
    **dict.fromkeys(("corrupted-midpoint", "corrupted-best"), "CIFAR-10, not ImageNet"),
}


def judged(claim: Claim, figure: str) -> Judgement | None:
    """Judge a claim by the first file that has both sides; beside an ensemble of both seeds, both sides are means."""
    for source in SOURCES.get(figure, ()):
        known = source()

        def values(expression: str, metric: str, known: Values = known) -> Mapping[int, float]:
            by_seed = known[expression, metric]
            return {0: fmean(by_seed.values())} if ": runs" in claim.formula else by_seed

        with suppress(KeyError):
            return claim.judge(values)
    return None


@cache
def read(name: str) -> Any:
    """Return the content of `results/NAME.json`; nothing if it is not there."""
    file = RESULTS / f"{name}.json"
    return json.loads(file.read_text()) if file.is_file() else {}


def comparison(name: str, suffixes: tuple[str, ...] = ("",)) -> Values:
    """Return the values of a comparison; suffixes are added to what is said of it."""
    known: dict[tuple[str, str], dict[int, float]] = {}
    for each in read(name)["entries"]:
        for label in METHODS.get(each["method"], ()) if each["answer"] in ANSWERS else ():
            for metric, found in each["metrics"].items():
                by_seed = {seeds[0]: value for seeds, value in zip(each["seeds"], found["values"], strict=True)}
                known |= {(label + ANSWERS[each["answer"]] + suffix, metric): by_seed for suffix in suffixes}
    return known


def over_noise(name: str) -> Values:
    """Return the values of a study over label noise: without any, and in the mean over all other levels."""
    known: dict[tuple[str, str], dict[int, float]] = {}
    study = read(name)["study"]
    for levels in (study["levels"][:1], study["levels"][1:]):
        for label in ("standard", "line", "integral"):
            lines = [each for each in study["lines"] if each["method"] == label and each["label_noise"] in levels]
            alone = [each["metrics"] for each in lines if each["answer"] in ("network", "midpoint")]
            every = [metrics["accuracy"]["values"] for metrics in alone]
            by_seed = dict(zip(study["seeds"], map(fmean, zip(*every, strict=True)), strict=True))
            known[f"{label}: at {', '.join(map(str, levels))}", "accuracy"] = by_seed
    return known


def single_runs(name: str) -> Values:
    """Return the values of single runs, on clean and on corrupted images."""
    known: dict[tuple[str, str], dict[int, float]] = {}
    changes: dict[tuple[str, int], list[float]] = {}
    runs = [run for run in read(name)["runs"].values() if run["recipe"]["method"] != "snapshot"]
    for run in sorted(runs, key=lambda run: run["recipe"]["method"] != "standard"):
        label, seed = (
            f"{'layerwise ' * run['recipe'].get('layerwise', False)}{run['recipe']['method']}",
            run["recipe"]["seed"],
        )
        clean, kinds = accuracies(run)
        changes[label, seed] = [each[0.5] / clean[0.5] - 1 for each in kinds.values()]
        lost = zip(changes[label, seed], changes["standard", seed], strict=True)
        found = {
            ("", "accuracy"): clean[0.5],
            **{(f": at {alpha}", "accuracy"): value for alpha, value in clean.items()},
            **{(f": {metric}", metric): run["result"][metric] for metric in ("l2", "cos2")},
            (": ends", "accuracy"): ends(run),
            (": change", "change"): fmean(changes[label, seed]),
            (": share of corruptions", "share"): fmean(ours > theirs for ours, theirs in lost),
            (": change at its best", "change"): fmean(
                max(each[alpha] / clean[alpha] - 1 for alpha in each) for each in kinds.values()
            ),
            (": range on corrupted images", "accuracy"): fmean(span(kinds[kind]) for kind in ("snow", "contrast")),
            (": range on clean images", "accuracy"): span({alpha: clean[alpha] for alpha in kinds["snow"]}),
        }
        for (what, metric), value in found.items():
            known.setdefault((label + what, metric), {})[seed] = value
    return known


def accuracies(run: Any) -> tuple[dict[float, float], dict[str, dict[float, float]]]:
    """Return the accuracy by α: on clean images, and on each corruption at severity 3."""
    answer = next(iter(run["unchanged"]))
    points = (each for each in run["answers"] if (each["kind"], each["role"]) == ("point", "along"))
    clean = {each["alphas"][0]: each["metrics"]["accuracy"] for each in points}
    clean[0.5] = run["unchanged"][answer]["accuracy"]
    kinds = {}
    for each in (each for each in run["shifts"] if each["severity"] == 3):
        along = {float(alpha): value for alpha, value in each.get("along", {}).items()}
        kinds[each["name"]] = {**along, 0.5: each["answers"][answer]["accuracy"]}
    return clean, kinds


def ends(run: Any) -> float:
    """Return the mean accuracy of a subspace's ends, or vertices; NaN of one network."""
    points = [each for each in run["answers"] if each["kind"] == "point"]
    alone = [each for each in points if each["role"] == "vertex" or each["alphas"] in ([0.0], [1.0])]
    return fmean(each["metrics"]["accuracy"] for each in alone) if alone else float("nan")


def span(by_alpha: Mapping[float, float]) -> float:
    """Return how far apart the best and the worst point are, relative to their mean."""
    return (max(by_alpha.values()) - min(by_alpha.values())) / fmean(by_alpha.values())


CLEAN, RUNS = partial(comparison, "comparison/comparison"), partial(single_runs, "shift/runs")
NOISY = partial(comparison, "cifar10-noise/comparison", (": at 0.2, 0.4, 0.6", ": at 0.0, 0.2, 0.4, 0.6"))
SOURCES: dict[str, tuple[Callable[[], Values], ...]] = {  # by figure
    **dict.fromkeys(("planes", "dynamics", "corrupted-along", "corrupted-midpoint", "corrupted-best"), (RUNS,)),
    "along": (CLEAN, RUNS),
    **dict.fromkeys(("ensembles-along", "simplex-midpoint", "six-models"), (CLEAN,)),
    **dict.fromkeys(("label-noise", "large-noise"), (NOISY,)),
    "integral": (partial(over_noise, "integral/lenet/integral"),),
}
