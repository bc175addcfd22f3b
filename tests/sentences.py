"""What the documents say about results in sentences, with the numbers of the files under results/."""

import importlib.util
import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from statistics import mean
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parent.parent


def module(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(name, ROOT / "docs" / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    loaded = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(loaded)
    return loaded


tables = module("tables")


def percent(number: float, digits: int = 1) -> str:
    return f"{100 * number:.{digits}f}"


def means(found: list[Any], metric: str) -> str:
    return percent(mean(each[metric] for each in found))


def demo() -> dict[str, list[Any]]:
    return {
        "network": tables.answers("digits-standard"),
        "midpoint": tables.answers("digits-line"),
        "networks": tables.together("demo"),
        "points": tables.answers("digits-line", "ensemble", "along", [0.1, 0.9]),
    }


def compared(method: str, answer: str) -> Any:
    entries = tables.read("comparison/comparison")["entries"]
    (entry,) = (e for e in entries if (e["method"], e["answer"]) == (method, answer))
    return entry["metrics"]["accuracy"]


def noisy(method: str) -> str:
    lines = tables.read("noise/noise")["lines"]
    fits = [line for line in lines if (line["label_noise"], line["method"]) == (0.4, method)]
    return percent(fits[0]["metrics"]["accuracy"]["mean"])


def minutes(summary: str) -> float:
    """Return the time from the first start of a run to the last ensemble of runs."""
    found = tables.read(summary)
    began = min(datetime.fromisoformat(start["time"]) for run in found["runs"].values() for start in run["starts"])
    ended = max(datetime.fromisoformat(each["environment"]["time"]) for each in found["ensembles"])
    return (ended - began).total_seconds() / 60


def of_performance() -> Iterator[str]:
    """Yield what docs/performance.md says of the files it names."""
    rows = tables.read("speed/engine-h200-with-plain-loops")["rows"]
    yield f"to the {rows['standard']['ms']:.2f} ms that a standard step took then"
    rows = tables.read("speed/engine-cpu")["rows"]
    share = rows["line"]["ms"] / rows["plain loop, line layer by layer"]["ms"]
    yield f"a line's step is {share:.2f} of the same step as such a loop"
    once = tables.read("speed/engine-h200")["at_once"]
    yield f"take {once['2']:.3f} ms per network-step for two, {once['4']:.3f} for four and {once['8']:.3f} for eight"
    small = tables.read("speed/small-cpu")
    before, after = (small["step"][side]["line"]["ratio"] for side in ("before", "after"))
    yield f"took {before:.1f} times the step of a plain network and takes {after:.1f} times now"
    before, after = (1 / small["engine"][side]["eager, standard"]["ratio"] for side in ("before", "after"))
    yield f"took {before:.2f} times that of an ordinary loop and takes {after:.2f} times"
    study = tables.read("speed/study-cpu")
    stacked, single = (study["rows"][f"stack {count}"] for count in (16, 1))
    yield f"204 runs on one core, takes {stacked['wall_s']:.0f} s in all, and {single['wall_s']:.0f} s with"
    phases = [[each["phases_s"][name] for each in (stacked, single)] for name in ("training", "evaluation")]
    (few, many), (one, other) = phases
    yield f"training {few:.0f} instead of {many:.0f} s, evaluation {one:.0f} and {other:.0f} s"
    seconds = tables.read("speed/evaluate-h200")["seconds"]
    whole = seconds["evaluate: 21 points and 11 ensembles, with reading the data"]
    yield f"take {whole:.1f} s, of which {seconds['first point']:.0f} s are capturing and measuring kernels once"
    point, pair = seconds["a point"], 1000 * seconds["the rows of a pair"]
    yield f"A further point takes {point:.2f} s and the numbers of a pair {pair:.0f} ms"


def of_readme() -> Iterator[str]:
    """Yield what the README says in sentences, with the numbers of the files."""
    yield f"CIFAR-10, cResNet20, {tables.read('comparison/comparison')['entries'][0]['recipe']['epochs']} epochs"
    found = demo()
    noise = tables.runs_of("digits-line")[0]["recipe"]["label_noise"]
    yield f"scikit-learn's digits with {percent(noise, 0)} % random training labels"
    right = {name: means(each, "accuracy") for name, each in found.items()}
    yield f"(`make demo`, five seeds) one network has {right['network']} % of the clean test labels right"
    yield f", the line's midpoint {right['midpoint']} %, two networks together {right['networks']} %"
    yield f"and two points of the line {right['points']} %."
    ece = {name: means(each, "ece") for name, each in found.items()}
    yield f"falls from {ece['network']} to {ece['midpoint']} % with the midpoint and to {ece['points']} % with"
    simplex, standard, early = (noisy(name) for name in ("simplex (m = 3), layerwise", "standard", "early-stopping"))
    yield f"the midpoint reaches {simplex} %, against {standard} % for one network (three seeds)"
    yield f"Stopping early by clean held-out images is better still ({early} %)"
    engine = tables.read("speed/engine-h200")["rows"]
    yield f"takes {engine['standard']['ms']:.2f} ms for a whole standard step"
    yield f"{engine['line']['ratio']:.2f} of that for a line and {engine['simplex 6']['ratio']:.2f} for six vertices"


def of_results() -> Iterator[str]:
    """Yield what RESULTS.md says in sentences, with the numbers of the files."""
    yield from of_comparison()
    yield from of_cifar10()
    yield from of_integral()
    yield from of_reproduction()
    images = tables.read("noise/noise")["validation"]
    yield f"Early stopping on {images} clean held-out images"
    runs = {run for each in tables.read("noise/noise")["comparisons"] for e in each["entries"] for run in e["runs"]}
    lines = tables.read("noise/noise")["lines"]
    runs |= {run for line in lines for candidate in line["candidates"] for run in candidate.get("runs", [])}
    yield f"{len(runs)} runs on one core"
    bad = re.search(r"No bad case among (\d+)", (ROOT / "results/campaign/campaign.md").read_text())
    assert bad is not None
    yield f"No bad case among {int(bad[1]):,}."


def of_reproduction() -> Iterator[str]:
    found = tables.read("reproduce/smoke")
    counts = found["counts"]
    holds, not_so, noisy_ones = (counts[word] for word in ("holds", "does not", "too noisy to say"))
    yield f"{holds} of {sum(counts.values())} claims hold here, {not_so} do not, and {noisy_ones} are too noisy to say."
    failed = {each["exhibit"] for each in found["exhibits"] for one in each["claims"] if one["verdict"] == "does not"}
    assert failed == {"dynamics", "point-init", "betas", "label-noise", "epochs", "instability"}
    assert found["seeds"] == [0, 1, 2]
    (environment,) = found["environments"]
    yield f"runs on one core of an {environment['hardware'].partition(',')[0]}"


def of_comparison() -> Iterator[str]:
    names = [
        ("line", "ensemble of 0.1 and 0.9"),
        ("standard", "ensemble of 2 runs"),
        ("simplex (m = 3)", "ensemble of 6 random points"),
        ("snapshot (m = 6)", "ensemble of 6 members"),
    ]
    line, networks, simplex, snapshots = (percent(compared(*name)["mean"]) for name in names)
    yield f"Two points of a line ({line} %) come closest to two networks ({networks} %)"
    yield f"six random points of a simplex ({simplex} %) and six snapshots ({snapshots} %)"
    gain = max(compared("simplex (m = 3)", "midpoint")["difference"]["values"])
    yield f"only the simplex's is, for one seed and by {percent(gain, 2)} points"
    first = tables.read("comparison/comparison")["entries"][0]
    yield f"cResNet20, {first['recipe']['epochs']} epochs, all twenty runs at once"
    yield f"{first['training_network_steps']:,.0f} steps make another network of it"
    yield f"trained and evaluated in {int(minutes('comparison/runs'))} minutes"


def of_cifar10() -> Iterator[str]:
    runs = {name: tables.runs_of(f"cifar10-{name}") for name in ("standard", "line", "simplex")}
    yield f"the longest of them {max(run['seconds'] for each in runs.values() for run in each):.0f} s"
    fitted = {name: percent(each[0]["result"]["train_accuracy"]) for name, each in runs.items()}
    yield f"({fitted['line']} and {fitted['simplex']} % against {fitted['standard']} %, seed 0)"
    networks = [each["accuracy"] for each in tables.answers("cifar10-standard")]
    pairs = [each["accuracy"] for each in tables.answers("cifar10-line", "ensemble", "along", [0.1, 0.9])]
    gains = sorted(pair - network for pair, network in zip(pairs, networks, strict=True))
    yield f"The line's ensemble is {percent(gains[0])} to {percent(gains[1])} points more accurate than a network"
    earlier = {
        name: each["midpoint"] for name, each in tables.read("cifar10/earlier")["test_accuracy"].items() if "-" in name
    }
    line, standard = ([v for k, v in sorted(earlier.items()) if method in k] for method in ("line", "standard"))
    yield (
        f"had standard at {percent(standard[0], 2)} and {percent(standard[1], 2)} % and the line's midpoint at "
        f"{percent(line[0], 2)} and {percent(line[1], 2)} %."
    )
    midpoints = [each["accuracy"] for each in tables.answers("cifar10-line")]
    below = [b - a for b, a in zip(standard + networks, line + midpoints, strict=True)]
    below += [-value for value in compared("line", "midpoint")["difference"]["values"]]
    yield f"the midpoint is {percent(mean(below), 2)} points below standard"
    yield from of_statistics(runs["simplex"][0]["evaluated"]["checks"])


def of_statistics(checks: list[Any]) -> Iterator[str]:
    def worst(cells: bool, images: int, metric: str) -> float:
        found = {c["statistics_images"]: c[metric] for c in checks if (c["where"] != "points") == cells}
        return max(abs(some - full) for some, full in zip(found[images], found[50000], strict=True))

    cells = [percent(worst(True, images, "accuracy"), 2) for images in (1280, 6400)]
    points = [percent(worst(False, images, "accuracy"), 2) for images in (1280, 6400)]
    all_cells = [100 * cell for check in checks if check["where"] != "points" for cell in check["accuracy"]]
    yield f"(between {min(all_cells):.0f} and {max(all_cells):.0f} %)"
    yield f"of 25 cells of the simplex's plane differs by at most {cells[0]} and {cells[1]} points"
    yield f"that of four of its points by at most {points[0]} and {points[1]}"
    yield f"the loss by at most {max(worst(c, i, 'nll') for c in (True, False) for i in (1280, 6400)):.3f}"


def of_integral() -> Iterator[str]:
    def run(method: str, noise: float) -> Any:
        wanted = {"name": f"mnist-{method}", "label_noise": noise, "seed": 0}
        found = tables.read("integral/lenet/runs")["runs"].values()
        (result,) = (each["result"] for each in found if wanted.items() <= each["recipe"].items())
        return result

    recipes = [each["recipe"] for each in tables.read("integral/lenet/runs")["runs"].values()]
    yield f"{recipes[0]['epochs']} epochs, learning rate {recipes[0]['learning_rate']:g}, one H200, {len(recipes)} runs"
    yield f"a line, ε = {recipes[0]['epsilon']:g}."
    yield f"with 60 % noise it has {percent(run('standard', 0.6)['train_accuracy'], 0)} % right"
    losses = [run(method, 0.0)["loss"] for method in ("line", "standard")]
    yield f"training loss {losses[0]:.3f} against {losses[1]:.3f} without noise"
    lines = {name: tables.read(f"integral/{name}/integral")["identities"] for name in ("lenet", "mlp", "digits")}
    every = [line for each in lines.values() for line in each]
    worst = max(line["rounding"] for line in every)
    yield f"In all {len(every)} trained lines the mean of f over steps of ε is g(x, P(1)) to {worst:.0e} of".replace(
        "e-0", "e-"
    )
    mnist = max(line["disagreement"] for name in ("lenet", "mlp") for line in lines[name])
    digits = max(line["disagreement"] for line in lines["digits"])
    yield f"at most {percent(mnist)} % of the first 1,000 test images of MNIST and {percent(digits, 0)} % of the"


def of_guide() -> Iterator[str]:
    """Yield what the guide says of starts and learning rates in sentences, with the numbers of the files."""
    starts = tables.rows_of("starts", "label_noise", "shape", "start")

    def said(data: str, start: str, metric: str) -> str:
        rows = starts[data, 0.4, "simplex of 3, layerwise", start]
        return str(tables.spread(rows, metric, 1))

    small, alone = "one point, offset 0.1", "independent"
    yield f"{said('mnist', alone, 'accuracy')} % against {said('mnist', small, 'accuracy')} % with an offset of 0.1"
    zero, tenth, independent = (
        said("digits", start, "ece").partition(" ")[0] for start in ("one point, offset 0", small, alone)
    )
    yield f"with an ECE of {zero} % at offset 0, {tenth} % at 0.1 and {independent} % from independent vertices"

    yield from of_rates()


def of_rates() -> Iterator[str]:
    grid = tables.by_rate()
    costs: dict[str, float] = {}
    for (data, _), cells in grid.items():
        network = tables.best(grid[data, "network"])
        costs[data] = max(costs.get(data, 0), cells[network][2] - cells[tables.best(cells)][2])
        assert tables.best(cells) / network in ((1, 2, 4) if data == "digits" else (0.5, 1, 2))
        slower, alone = (each[0.5][2] - each[1][2] for each in (cells, grid[data, "network"]))
        assert slower >= alone or data == "cifar10"
    yield (
        f"costs at most {costs['digits']:.3f} of NLL on digits, {costs['mnist']:.3f} on MNIST and "
        f"{costs['cifar10']:.3f} on CIFAR-10"
    )
    network, line = (percent(grid["mnist", method][4][0]) for method in ("network", "line"))
    yield f"LeNet bears it ({network} %), its line does not ({line} %)"
    line, network = percent(grid["cifar10", "line"][4][0]), percent(grid["cifar10", "network"][0.5][0])
    yield f"a line has {line} % at four times the rate, and one network {network} % at half of it"


SENTENCES = {
    "docs/guide.md": list(of_guide()),
    "README.md": list(of_readme()),
    "RESULTS.md": list(of_results()),
    "docs/performance.md": list(of_performance()),
}
