"""Write the tables of the documents from the files under results/: `make tables`.

A table stands between `<!-- table: NAME -->` and `<!-- end -->`; NAME is a key of `TABLES`.
"""

import json
import re
import statistics
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
DOCUMENTS = ("README.md", "RESULTS.md", "docs/guide.md", "docs/performance.md", "docs/scale.md")
METRICS = ("accuracy", "ece", "nll")
BLOCK = re.compile(r"(<!-- table: (.+?) -->\n).*?(<!-- end -->)", re.DOTALL)
SHORT = {  # the rows of the README: what the comparison calls them, and what they are called there
    ("standard", "network"): "standard training",
    ("swa-constant (m = 3)", "average of 3"): "weight averaging (SWA), constant rate",
    ("line", "midpoint"): "line: midpoint",
    ("line, layerwise", "midpoint"): "line, layerwise: midpoint",
    ("simplex (m = 3), layerwise", "midpoint"): "simplex of 3, layerwise: midpoint",
    ("line", "ensemble of 0.1 and 0.9"): "line: its points 0.1 and 0.9",
    ("simplex (m = 3)", "ensemble of 6 random points"): "simplex of 3: six random points",
    ("standard", "ensemble of 2 runs"): "two networks",
}
NOISY_ROWS = (  # the rows of the README with noisy labels
    *(("standard", "network"), ("line", "midpoint"), ("simplex (m = 3), layerwise", "midpoint")),
    *(("line", "ensemble of 0.1 and 0.9"), ("standard", "ensemble of 2 runs")),
)

NOISE = 0.4
CLEAN, NOISY, SHIFTED = "CIFAR-10", "digits, 40 % random labels", "CIFAR-10, corrupted"
LAYERWISE = "simplex (m = 3), layerwise"
NEEDS = (  # what is needed, where it was measured, and what to take
    ("one accurate network", CLEAN, "line, layerwise", "midpoint"),
    ("one network whose confidence is right", CLEAN, LAYERWISE, "midpoint"),
    ("two networks at test time", CLEAN, "line", "ensemble of 0.1 and 0.9"),
    ("six networks at test time", CLEAN, "simplex (m = 3)", "ensemble of 6 random points"),
    ("one network, labels are noisy", NOISY, LAYERWISE, "midpoint"),
    ("three networks, labels are noisy", NOISY, "simplex (m = 3)", "ensemble of 3 vertices"),
    ("labels are noisy, some clean ones are held out", NOISY, "early-stopping", "network"),
    ("one network, images will differ", SHIFTED, "simplex, layerwise", "midpoint"),
    ("three networks, images will differ", SHIFTED, "simplex", "ensemble of 3 vertices"),
)


def read(name: str) -> Any:
    """Return what the file `results/NAME.json` says."""
    return json.loads((ROOT / "results" / f"{name}.json").read_text())


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in Markdown."""
    lines = [f"| {' | '.join(row)} |\n" for row in [head, *rows]]
    return "".join([lines[0], f"|{'---|' * len(head)}\n", *lines[1:]])


def summed(values: Sequence[float]) -> Any:
    """Return the mean and, of several, the standard deviation, as the studies write them."""
    return {"mean": statistics.mean(values), "std": statistics.stdev(values) if len(values) > 1 else None}


def quality(metric: str, found: Any, digits: int | None = None) -> str:
    """Return a metric's mean and deviation: accuracy and ECE in percent, others as they are."""
    scale, usual = (100, 2) if metric in ("accuracy", "ece") else (1, 3)
    numbers = [found["mean"]] + ([found["std"]] if found["std"] is not None else [])
    return " ± ".join(f"{scale * number:.{usual if digits is None else digits}f}" for number in numbers)


def interval(difference: Any) -> str:
    """Return a difference in percent points with its confidence interval, where it has one."""
    mean, low, high = (difference[key] for key in ("mean", "low", "high")) if difference else (None, None, None)
    found = [f"{100 * n:+.2f}".replace("-", "−") if n is not None else "" for n in (mean, low, high)]
    return found[0] + (f" [{found[1]}, {found[2]}]" if found[1] else "")


def comparison(short: bool, folder: str = "comparison", named: Sequence[tuple[str, str]] = tuple(SHORT)) -> str:
    """Return a comparison on CIFAR-10: all of it, or the rows of the README without the differences."""
    entries = {(entry["method"], entry["answer"]): entry for entry in read(f"{folder}/comparison")["entries"]}
    labels, rows = {key: SHORT[key] for key in named} if short else {key: ": ".join(key) for key in entries}, []
    for key, label in labels.items():
        entry, metrics = entries[key], entries[key]["metrics"]
        accuracy, ece, nll = (quality(name, metrics[name]) for name in METRICS)
        cost = f"{entry['training_relative']:g} / {entry['networks_at_test']}"
        rows.append([label, accuracy, interval(metrics["accuracy"]["difference"]), ece, nll, cost])
    head = ["", "accuracy %", "difference to standard", "ECE %", "NLL", "networks trained / at test"]
    head, *rows = ([cell for i, cell in enumerate(row) if i != 2 or not short] for row in (head, *rows))
    return table(head, rows)


def runs_of(recipe: str) -> list[Any]:
    """Return the evaluated runs of a recipe, on CIFAR-10 or of the demo, in the order of their seeds."""
    study = "cifar10" if recipe.startswith("cifar10") else "demo"
    runs = [run for run in read(f"{study}/summary")["runs"].values() if "answers" in run]
    return sorted((run for run in runs if run["recipe"]["name"] == recipe), key=lambda run: run["recipe"]["seed"])


def answers(recipe: str, kind: str = "point", role: str = "midpoint", alphas: Any = None) -> list[Any]:
    """Return the test metrics of the first answer of this kind, role and, if given, points of each run of a recipe."""
    wanted = {"kind": kind, "role": role, "split": "test"} | ({"alphas": alphas} if alphas else {})
    return [next(a["metrics"] for a in run["answers"] if wanted.items() <= a.items()) for run in runs_of(recipe)]


def together(study: str) -> list[Any]:
    """Return the metrics of the runs that answer together."""
    return [entry["metrics"]["test"] for entry in read(f"{study}/summary")["ensembles"]]


def cifar10() -> str:
    """Return the runs on CIFAR-10 that are looked at closely, each seed for itself."""
    found = {
        "standard": answers("cifar10-standard"),
        "line: midpoint": answers("cifar10-line"),
        "line: ensemble of 0.1 and 0.9": answers("cifar10-line", "ensemble", "along", [0.1, 0.9]),
        "simplex of 3: midpoint": answers("cifar10-simplex"),
        "simplex of 3: ensemble of the vertices": answers("cifar10-simplex", "ensemble", "vertex"),
        "simplex of 3: ensemble of 6 random points": answers("cifar10-simplex", "ensemble", "random"),
        "ensemble of the two standard networks": together("cifar10"),
    }
    rows = [[name, *(", ".join(quality(c, summed([m[c]])) for m in ms) for c in METRICS)] for name, ms in found.items()]
    return table(["seeds 0, 1", "accuracy %", "ECE %", "NLL"], rows)


def vertices(recipe: str) -> list[Any]:
    """Return the metrics of the vertices of each run of a recipe, in the mean over them."""
    places = [[float(i == vertex) for i in range(3)] for vertex in range(3)]
    every = zip(*(answers(recipe, "point", "vertex", [place]) for place in places), strict=True)
    return [{name: statistics.mean(each[name] for each in run) for name in run[0]} for run in every]


def demo() -> str:
    """Return the table of the demo."""
    simplex = "digits-simplex-layerwise"
    found = [
        ("one network", "1 / 1", answers("digits-standard")),
        ("the simplex's vertices (mean)", "1 / 1", vertices(simplex)),
        ("the simplex's midpoint", "1 / 1", answers(simplex)),
        ("two networks", "2 / 2", together("demo")),
        ("six points of the simplex", "1 / 6", answers(simplex, "ensemble", "random")),
        ("one network stopped early", "1 / 1", answers("digits-early-stopping")),
    ]
    rows = [[name, *(quality(c, summed([m[c] for m in ms]), 1) for c in METRICS[:2]), k] for name, k, ms in found]
    return table(["", "accuracy %", "ECE %", "networks trained / at test"], rows)


def noise(ensembles: bool) -> str:
    """Return accuracy (and ECE) over label noise: of the methods as one network, or of their ensembles."""
    study = read("noise/noise")
    cells: dict[str, list[str]] = {}
    for line in (line for line in study["lines"] if line["answer"].startswith("ensemble") == ensembles):
        label = f"{line['method']}{', best of five' if line['setting'] else ''}: {line['answer']}"
        accuracy, ece = (100 * line["metrics"][name]["mean"] for name in ("accuracy", "ece"))
        cells.setdefault(label, []).append(f"{accuracy:.2f} ({ece:.1f})")
    return table(["label noise", *(f"{level:g}" for level in study["levels"])], [[k, *v] for k, v in cells.items()])


def instability() -> str:
    """Return the study of networks that share their first epochs."""
    study = read("instability/instability")
    cells = {(c["models"], c["shared"], c["kind"]): c["metrics"]["accuracy"] for c in study["cells"]}
    ways = (("average", "average"), ("outputs", "ensemble"))
    columns = {f"{word} of {m}": (m, way) for m in study["models"] for word, way in ways}
    columns = {"each branch": (study["models"][0], "branch"), **columns}
    rows = [[str(k), *(quality("accuracy", cells[m, k, way]) for m, way in columns.values())] for k in study["shared"]]
    return table(["shared epochs", *columns], rows)


def integral(network: str) -> str:
    """Return the study of Integral with one network."""
    found = read(f"integral/{network}/integral")
    study = found.get("study", found)
    lines = {(line["label_noise"], line["method"], line["answer"]): line for line in study["lines"]}
    rows = []
    for level in study["levels"]:
        found = [lines[level, *key] for key in (("standard", "network"), ("line", "midpoint"), ("integral", "network"))]
        cells = [quality("accuracy", line["metrics"]["accuracy"]) for line in found]
        beside = found[-1].get("differences") or {"accuracy": found[-1]["metrics"]["accuracy"]["difference"]}
        rows.append([f"{level:g}", *cells, interval(beside["accuracy"])])
    return table(["label noise", "standard", "line, midpoint", "integral", "integral − standard"], rows)


def step(short: bool, name: str = "step-cpu") -> str:
    """Return the time of a step over a plain one's on a CPU."""
    rows = read(f"speed/{name}")["rows"]
    if short:
        names = {"plain": "plain network", "line": "line", "curve": "curve, one bend", "simplex 6": "simplex of 6"}
        return table(["", *names.values()], [["time of a step", *(f"{rows[name]['ratio']:.2f}" for name in names)]])
    cells = "{ms:.{digits}f} | {ratio:.3f} | {quartiles[0]:.3f}–{quartiles[1]:.3f}"
    lines = [[each, cells.format(digits=1 if row["ms"] >= 10 else 2, **row)] for each, row in rows.items()]
    return table(["", "ms", "of plain", "quartiles"], lines)


LARGE = {  # files of steps of large networks on a CPU, and the networks
    "gpt2": "GPT-2, 6 layers",
    "gpt2-compiled": "GPT-2, 6 layers, compiled",
    "vit-b16": "ViT, 6 layers",
    "resnet50": "ResNet-50, 96 pixels",
}


def large_memory() -> str:
    """Return the peaks of these steps, and how far they are above what is needed."""
    rows = []
    for name, label in LARGE.items():
        (found,) = read(f"speed/step-{name}-cpu")["memory"].values()
        peaks = [
            f"{found[each]['peak_mb']:,.1f} ({100 * found[each]['over']:+.1f} %)" for each in ("line", "simplex 3")
        ]
        plain = (f"{found['plain'][each]:,.1f}" for each in ("weights_mb", "peak_mb"))
        rows.append([label, *plain, *(peak.replace("-", "−") for peak in peaks)])
    return table(["MB", "weights", "plain", "line (above need)", "simplex of 3 (above need)"], rows)


def large_time() -> str:
    """Return the time of these steps over that of the plain networks."""
    cell = "{ratio:.3f} ({quartiles[0]:.3f}–{quartiles[1]:.3f})"
    rows = []
    for name, label in LARGE.items():
        content = read(f"speed/step-{name}-cpu")
        found = content.get("rows", content.get("rows, compiled"))
        ratios = (cell.format(**found[each]) for each in ("line", "simplex 3", "plain again"))
        rows.append([label, f"{found['plain']['ms']:.1f} ms", *ratios])
    return table(["", "plain", "line", "simplex of 3", "plain again"], rows)


def streaming() -> str:
    """Return how many photographs one core reads, decodes and crops in a second."""
    found = read("speed/streaming-cpu")
    rates = {**found["pieces"], **found["loader, of a core's time"]}
    return table(["", "images / s"], [[name, f"{rate:,.1f}"] for name, rate in rates.items()])


def engine() -> str:
    """Return the time of the engine's whole step; the plain loops on the H200 are of an earlier run."""
    cpu, gpu, earlier = (read(f"speed/engine-{name}")["rows"] for name in ("cpu", "h200", "h200-with-plain-loops"))
    pairs = {name: (cpu[name], gpu.get(name, earlier[name])) for name in cpu}
    rows = [[name, *(f"{row['ms']:#.4g} ms | {row['ratio']:.3f}" for row in pair)] for name, pair in pairs.items()]
    return table(["", "two cores of an AMD EPYC, float32", "of standard", "H200, bfloat16", "of standard"], rows)


def stacks() -> str:
    """Return the time of a network's step among others as one program over that of one alone, on a CPU."""
    found = read("speed/stack-cpu")["stacks"]
    cell = "{ratio:.2f} ({quartiles[0]:.2f}–{quartiles[1]:.2f})"
    rows = [[k, *(cell.format(**found[name][k]) for name in found)] for k in next(iter(found.values()))]
    return table(["runs", *found], rows)


def small() -> str:
    """Return the times of a step of a small network before and after it was made lighter."""
    found = read("speed/small-cpu")
    cell = "{ms:.2f} ms | {ratio:.2f} ({quartiles[0]:.2f}–{quartiles[1]:.2f})"
    rows = []
    for kind, where in (("step", "own loop"), ("engine", "engine")):
        for name in found[kind]["after"]:
            if not name.endswith("again"):
                sides = (found[kind][side][name] for side in ("before", "after"))
                rows.append([f"{where}: {name}", *(cell.format(**side) for side in sides)])
    return table(["", "before", "of plain or standard", "after", "of plain or standard"], rows)


def any_family() -> str:
    """Return the times of a step and of an evaluation before and after the evaluation of any family."""
    found = read("speed/any-family-h200")
    rows = []
    for name in ("standard", "line", "simplex 6"):
        numbers = [found["engine_ms"][side][name] for side in ("before", "after")]
        rows.append([f"engine: a step, {name}", *(f"{number:.3f} ms" for number in numbers)])
    whole = "evaluate: 21 points and 11 ensembles, with reading the data"
    for name, label in (("a point", "evaluation: a point"), (whole, "evaluation: 21 points and 11 ensembles")):
        numbers = [statistics.median(each[name] for each in found["evaluate_seconds"][s]) for s in ("before", "after")]
        rows.append([label, *(f"{number:.2f} s" for number in numbers)])
    return table(["", "before", "after"], rows)


def fresh() -> str:
    """Return what fresh batch-norm statistics cost and how good they are."""
    rows = []
    for name, row in read("speed/statistics-h200")["rows"].items():
        accuracies = [f"{row[key]:.2f}" for key in ("as it is", "recalibrated", "gap over epochs", "largest gap")]
        rows.append(["none" if name == "None" else name, f"{row['step']:.3f}", *accuracies])
    head = ["statistics_every", "time of a step", "at the end, as it is %", "recalibrated %", "mean gap", "largest gap"]
    return table(head, rows)


def shifted() -> dict[str, list[Any]]:
    """Return the runs that were measured on corrupted images, by method."""
    found: dict[str, list[Any]] = {}
    for run in read("shift/runs")["runs"].values():
        found.setdefault(run["recipe"]["name"].removeprefix("cifar10-").replace("-", ", "), []).append(run)
    return dict(sorted(found.items(), key=lambda each: each[0] != "standard"))


def means(run: Any, answer: str) -> dict[str, float]:
    """Return the metrics of an answer in the mean over all corruptions and severities."""
    return {name: statistics.mean(each["answers"][answer][name] for each in run["shifts"]) for name in METRICS}


def best_along(run: Any) -> float:
    """Return the mean over corruptions of the accuracy of each one's best point, found with hindsight."""
    kinds: dict[str, list[Any]] = {}
    for each in run["shifts"]:
        kinds.setdefault(each["name"], []).append(each["along"] | {"0.5": each["answers"]["midpoint"]["accuracy"]})
    best = [max(statistics.mean(one[a] for one in some) for a in some[0]) for some in kinds.values()]
    return float(statistics.mean(best))


def shift() -> str:
    """Return how the methods answer on corrupted images, and how much worse than on those that are not."""
    rows = []
    for method, runs in shifted().items():
        for answer in runs[0]["unchanged"]:
            found = [(run["unchanged"][answer], means(run, answer)) for run in runs]
            clean, accuracy, ece, nll = (
                quality(name, summed([pair[at][name] for pair in found]))
                for name, at in (("accuracy", 0), ("accuracy", 1), ("ece", 1), ("nll", 1))
            )
            change = [100 * (after["accuracy"] / before["accuracy"] - 1) for before, after in found]
            relative = f"{statistics.mean(change):.1f}".replace("-", "−")
            rows.append([f"{method}: {answer}", clean, accuracy, relative, ece, nll])
        if "along" in runs[0]["shifts"][0]:
            ideal = quality("accuracy", summed([best_along(run) for run in runs]))
            rows.append([f"{method}: best α for each corruption \\*", "", ideal, "", "", ""])
    return table(["", "accuracy %", "corrupted: accuracy %", "change %", "ECE %", "NLL"], rows)


def outliers() -> str:
    """Return how well the methods tell CIFAR-10 from MNIST: AUROC and FPR95 of each score."""
    rows = []
    for method, runs in shifted().items():
        for answer in runs[0]["unchanged"]:
            found = [run["outliers"][0]["answers"][answer] for run in runs]
            cells = []
            for score in ("probability", "entropy", "disagreement"):
                known = [[each.get(f"{name}_{score}") for each in found] for name in ("auroc", "fpr95")]
                cells.append(" / ".join(f"{100 * statistics.mean(v):.1f}" for v in known) if known[0][0] else "")
            rows.append([f"{method}: {answer}", *cells])
    return table(["AUROC / FPR95 in %, by", "largest probability", "entropy", "disagreement"], rows)


def selection() -> str:
    """Return what choosing a point on n corrupted images gives over the midpoint on all others, in the mean."""
    found: dict[tuple[str, str], dict[int, list[Any]]] = {}
    for run in read("shift/selection"):
        for each in run["choices"]:
            name = run["recipe"].removeprefix("cifar10-").replace("-", ", ")
            found.setdefault((name, each["by"]), {}).setdefault(each["examples"], []).append(each)
    rows, sizes = [], list(next(iter(found.values())))
    for (name, by), counts in found.items():
        cells = []
        for count in sizes:
            nll, accuracy, worse = (statistics.mean(e[k] for e in counts[count]) for k in ("nll", "accuracy", "worse"))
            text = f"{nll:+.3f}, {100 * accuracy:+.2f}".replace("-", "−")
            cells.append(f"{text}, {100 * worse:.0f} %")
        rows.append([f"{name}: {by}", *cells])
    return table(["gain in NLL, in accuracy (points), worse", *(f"{count} images" for count in sizes)], rows)


def reproduced() -> str:
    """Return the paper's figures: the first claim of each at the scale smoke, its verdicts, and whether it was made."""
    rows = []
    for each in read("reproduce/smoke")["figures"]:
        first, verdicts = each["claims"][0], [claim["verdict"] for claim in each["claims"]]
        counts = " / ".join(str(verdicts.count(word)) for word in ("holds", "does not", "too noisy to say"))
        scale = 100 if first["metric"] in ("accuracy", "ece", "change", "share") else 1
        difference = {name: value * scale / 100 for name, value in first["difference"].items() if name != "values"}
        cells = [first["claim"], interval(difference), first["verdict"], counts]
        rows.append([each["figure"], each["where"], *cells, at_paper_scale(each["figure"])])
    head = ["figure", "in the paper", "its first claim, on digits", "difference", "verdict", "hold / not / too noisy"]
    return table([*head, "at the scale paper"], rows)


def at_paper_scale(figure: str) -> str:
    """Return on which networks and data a figure was made at the scale of the paper."""
    there = (ROOT / "results" / "reproduce" / "paper.json").is_file()
    found = read("reproduce/paper")["figures"] if there else []
    return ", ".join(each["setup"] for each in found if each["figure"] == figure) or "not made yet"


def which() -> str:
    """Return what to take for what is needed, beside standard training, as it was measured."""
    clean = {(one["method"], one["answer"]): one["metrics"] for one in read("comparison/comparison")["entries"]}
    lines = [line for line in read("noise/noise")["lines"] if line["label_noise"] == NOISE]
    noisy = {(line["method"], line["answer"]): line["metrics"] for line in lines}
    corrupted = {
        (method, answer): {name: summed([means(run, answer)[name] for run in runs]) for name in METRICS}
        for method, runs in shifted().items()
        for answer in runs[0]["unchanged"]
    }
    studies = {CLEAN: clean, NOISY: noisy, SHIFTED: corrupted}
    rows = []
    for need, data, method, answer in NEEDS:
        found = (studies[data][key] for key in ((method, answer), ("standard", "network")))
        cells = [f"{quality('accuracy', one['accuracy'])}, {quality('ece', one['ece'])}" for one in found]
        rows.append([need, f"{method.replace(' (m = 3)', ' of 3')}: {answer}", *cells, data])
    return table(["you need", "take", "accuracy %, ECE %", "standard training has", "measured on"], rows)


DATA = {"digits": "digits", "mnist": "MNIST", "cifar10": "CIFAR-10"}
RATES = {  # what learning rates were tried of, and what it is called
    "network": "one network",
    "line": "line",
    "simplex": "simplex of 3",
    "layerwise": "line, layerwise",
    "point": "line, from one point",
}
Rows = list[dict[str, Any]]


def rows_of(folder: str, *names: str) -> dict[tuple[Any, ...], Rows]:
    """Return the rows of all files of a folder by their data set and what else is asked for."""
    found: dict[tuple[Any, ...], Rows] = {}
    for data in DATA:
        for file in sorted((ROOT / "results" / folder).glob(f"{data}*.json")):
            for row in read(f"{folder}/{file.stem}")["rows"]:
                found.setdefault((data, *(row[name] for name in names)), []).append(row)
    return found


def spread(rows: Rows, name: str, digits: int | None = None) -> str:
    """Return the mean and the deviation of a number over the seeds."""
    return quality("accuracy" if name == "pair" else name, summed([row[name] for row in rows]), digits)


def labels(noise: float) -> str:
    """Return how the labels are called."""
    return f", {100 * noise:.0f} % random labels" if noise else ""


def starts(short: bool) -> str:
    """Return how good families are from each start: the accuracy of the midpoint, or all numbers."""
    found = rows_of("starts", "label_noise", "shape", "start")
    cells: dict[str, list[str]] = {}
    for (data, noise, shape, start), rows in found.items():
        label = f"{DATA[data]}{labels(noise)}: {shape}"
        if short:
            cells.setdefault(label, []).append(spread(rows, "accuracy", 1))
        else:
            numbers = [spread(rows, *each) for each in (("accuracy",), ("ece",), ("nll",), ("pair",), ("l2", 1))]
            cells[f"{label}, {start}"] = numbers
    columns = dict.fromkeys(key[-1] for key in found)
    head = ["midpoint, accuracy %", *columns] if short else ["", "accuracy %", "ECE %", "NLL", "two points %", "L2"]
    return table(head, [[label, *numbers] for label, numbers in cells.items()])


def by_rate() -> dict[tuple[str, str], dict[float, list[float]]]:
    """Return accuracy, ECE and NLL by data set and method at each learning rate; none where a seed diverged."""
    grid: dict[tuple[str, str], dict[float, list[float]]] = {}
    for (data, method, factor), rows in rows_of("learning_rate", "method", "factor").items():
        diverged = any("diverged" in row for row in rows)
        means = [] if diverged else [statistics.mean(row[name] for row in rows) for name in METRICS]
        grid.setdefault((data, method), {})[factor] = means
    return grid


def best(cells: dict[float, list[float]]) -> float:
    """Return the learning rate of the lowest NLL."""
    return min((factor for factor, means in cells.items() if means), key=lambda factor: cells[factor][-1])


def rates(short: bool) -> str:
    """Return how good networks and midpoints are over learning rates, or at their best one and at one network's."""
    grid, lines = by_rate(), []
    factors = sorted({factor for cells in grid.values() for factor in cells})
    for (data, method), cells in grid.items():
        own, network = best(cells), best(grid[data, "network"])
        if short:
            numbers = [f"{own:g} ×", *(f"{cells[f][2]:.3f}, {100 * cells[f][0]:.1f}" for f in (own, network))]
        else:
            numbers = [words(cells.get(factor)) for factor in factors]
        lines.append([f"{DATA[data]}: {RATES[method]}", *numbers])
    if short:
        return table(["NLL, accuracy %", "best rate", "at it", "at the best rate of one network"], lines)
    return table(["accuracy %, ECE %, NLL", *(f"{factor:g} ×" for factor in factors)], lines)


def words(means: list[float] | None) -> str:
    """Return the metrics at a learning rate that was tried, if they are known."""
    if not means:
        return "diverged" if means == [] else ""
    return ", ".join(quality(name, {"mean": mean, "std": None}) for name, mean in zip(METRICS, means, strict=True))


TABLES: dict[str, Callable[[], str]] = {
    "which": which,
    "comparison": partial(comparison, short=True),
    "comparison, all": partial(comparison, short=False),
    "comparison, noise": partial(comparison, short=True, folder="cifar10-noise", named=NOISY_ROWS),
    "comparison, noise, all": partial(comparison, short=False, folder="cifar10-noise"),
    "cifar10": cifar10,
    "demo": demo,
    "noise": partial(noise, ensembles=False),
    "noise, ensembles": partial(noise, ensembles=True),
    "instability": instability,
    **{f"integral, {network}": partial(integral, network) for network in ("lenet", "mlp", "digits")},
    "step": partial(step, short=True),
    "step, all": partial(step, short=False),
    "step, mlp": partial(step, short=False, name="step-mlp-cpu"),
    "large, memory": large_memory,
    "large, time": large_time,
    "streaming": streaming,
    "engine": engine,
    "stacks": stacks,
    "small": small,
    "any family": any_family,
    "fresh": fresh,
    "shift": shift,
    "outliers": outliers,
    "selection": selection,
    "reproduced": reproduced,
    "starts": partial(starts, short=True),
    "starts, all": partial(starts, short=False),
    "rates": partial(rates, short=True),
    "rates, all": partial(rates, short=False),
}


def rewritten(text: str) -> str:
    """Return a document with all its tables as the files have them."""
    return BLOCK.sub(lambda block: block[1] + TABLES[block[2]]() + block[3], text)


if __name__ == "__main__":
    for document in (ROOT / name for name in DOCUMENTS):
        document.write_text(rewritten(document.read_text()))
