"""Every option of every command: what is typed, which argument of the call below it changes, and to what."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from subspaces.evaluation import Corruptions
from subspaces.experiments.training import Execution
from subspaces.experiments.training.recipe import all_fields

ALL = [f"digits-{name}" for name in ("standard", "line", "simplex", "ema", "sam", "integral")]  # each field has a user


@dataclass(frozen=True)
class Row:
    """An option: what is typed, the argument that it becomes (None: no call is made) and its value."""

    typed: str
    argument: str | None
    value: Any = None
    beside: str = ""  # what is typed with and without the option
    only: tuple[str, ...] = ()  # recipes in place of the command's
    refused: bool = False
    also: tuple[str, ...] = ()  # what else it changes


@dataclass(frozen=True)
class Command:
    """A command, the call that it makes, and its options by the names of their parameters."""

    calls: str
    base: list[str]
    rows: dict[str, Row]
    arguments: tuple[str, ...] = ("recipes",)


# The fields of recipes and of their execution

FIELDS = {*all_fields(), *(entry.name for entry in dataclasses.fields(Execution))}
VALUES: dict[str, Any] = {
    "name": "other",
    "dataset": "mnist",
    "network": "timm:resnet18",
    "init": "point",
    "optimizer": "Adam",
    "schedule": "constant",
    "device": "cpu",
    "precision": "bfloat16",
    "compile": True,
    "graph": False,  # True needs a GPU
    "flip": True,
    "vertices": 4,
    "channels_last": False,
    "image_size": 32,
    "augment": "resized-crop",
    "fingerprint": "flowers:3:0123456789ab",
    "ray": "head:6379",
    "start_from": "other-seed0-0123456789",
    "gpus_per_run": 0.25,
}
EXAMPLES: dict[Any, Any] = {int: 3, float: 0.25, bool: True, int | None: 3, bool | None: True}
OWN_IMAGES = "--dataset folder --fingerprint other:3:0123456789ab"
BESIDE = {
    "feature_similarity": "--samples 2",
    "dropout": "--network cresnet20",
    "image_size": OWN_IMAGES,
    "fingerprint": OWN_IMAGES,
    "cpus_per_run": "--ray",
    "gpus_per_run": "--ray",
}


def of_fields(**special: Row) -> dict[str, Row]:
    """A row for every field; that of a recipe is looked for among all recipes of the call."""
    rows = {}
    for entry in (*all_fields().values(), *dataclasses.fields(Execution)):
        option = f"--{entry.name.replace('_', '-')}"
        value = VALUES.get(entry.name, EXAMPLES.get(entry.type))
        typed = (option if value else f"--no{option[1:]}") if isinstance(value, bool) else f"{option} {value}"
        rows[entry.name] = Row(typed, entry.name, value, BESIDE.get(entry.name, ""))
    return rows | special


def output(table: bool = True) -> dict[str, Row]:
    """The rows of what commands that train have in common."""
    return {
        "data": Row("--data there", "data", Path("there")),
        "out": Row("--out other", "out", Path("other")),
        "quiet": Row("--quiet", "show", "quiet"),
        "json": Row("--json", "show", "quiet" if table else "json"),
        **({"runs": Row("--runs other", "runs", Path("other")), "dry_run": Row("--dry-run", None)} if table else {}),
    }


def given(**values: Any) -> dict[str, Row]:
    """Rows of options that are typed as `--name value`, or `--name`, and become the argument of their name."""
    return {
        name: Row(f"--{name.replace('_', '-')}{'' if value is True else f' {value}'}", name, value)
        for name, value in values.items()
    }


SEEDS = {"seeds": Row("--seeds 4 5", "seed", [4, 5])}
ENSEMBLES = {"ensembles": Row("--ensembles 2 3", "ensembles", (2, 3), "--seeds 0 1 2")}
LEVELS = {"levels": Row("--levels 0 0.3", "label_noise", [0.0, 0.3])}
CURVE = Row("--method curve", "method", "curve", only=("digits-line",), also=("vertices",))  # which it has
LISTS = ["--dropout-rates", "0", "--smoothing-rates", "0"]
NETWORK = given(data=Path("there"), device="cpu", precision="float32", workers=3, statistics_batches=9, trust=True)
QUIET = {"quiet": Row("--quiet", "progress", False)}
RATES = {
    "dropout_rates": Row("--dropout-rates .1", "dropout", [0.0, 0.1], "--network cresnet20", also=("name",)),
    "smoothing_rates": Row("--smoothing-rates .1", "label_smoothing", [0.0, 0.1], also=("name",)),
    **given(by="nll"),
    **ENSEMBLES,
}
NOISE = Row("--label-noise 0.25", "label_noise", refused=True)
STUDY = "subspaces.experiments.studies.setting:run"

COMMANDS = {
    "demo": Command(
        "subspaces.experiments.demo:run",
        [],
        {
            "out": Row("--out other", "out", Path("other")),
            "seeds": Row("--seeds 3", "setting.seeds", 3),
            "epochs": Row("--epochs 7", "setting.epochs", 7),
            "label_noise": Row("--label-noise 0.2", "setting.label_noise", 0.2),
            "quiet": Row("--quiet", "show", "quiet"),
        },
        (),
    ),
    "train": Command(
        "subspaces.experiments.training.api:train_recipes",
        ALL,
        {**of_fields(method=CURVE), **output(table=False), **SEEDS},
    ),
    "evaluate": Command(
        "subspaces.experiments.evaluating.evaluate:evaluate_runs",
        ["one", "two"],
        {
            "grid": Row("--grid 0 0.25 -0.1", "grid", (0.0, 0.25, -0.1)),
            "answers": Row("--answers midpoint --answers vertices", "answers", ("midpoint", "vertices")),
            "plane_through": Row("--plane-through a --plane-through b", "through", (Path("a"), Path("b"))),
            "corruptions": Row("--corruptions fog snow", "corruptions", Corruptions(["fog", "snow"])),
            "severities": Row("--severities 1 3", "corruptions", Corruptions("all", [1, 3]), "--corruptions all"),
            "corruption_seed": Row("--corruption-seed 7", "corruptions", Corruptions(seed=7), "--corruptions all"),
            **given(random=3, triangle=4, plane=True, cells=5, plane_statistics_batches=7),
            **NETWORK,
            **QUIET,
            "json": Row("--json", "progress", False),
        },
        ("runs",),
    ),
    "select": Command(
        "subspaces.experiments.evaluating.selection:select_run",
        ["one", "--corruption", "fog"],
        {
            **given(corruption="frost", severity=5, examples=20, by="entropy", per="layer", seed=3),
            **NETWORK,
        },
        ("run",),
    ),
    "compare": Command(
        STUDY,
        ALL,
        {
            **output(),
            **SEEDS,
            **ENSEMBLES,
            "reference": Row("--reference digits-line", "reference", "line"),
        },
    ),
    "study noise": Command(STUDY, [*ALL, *LISTS], {"label_noise": NOISE, **output(), **SEEDS, **LEVELS, **RATES}),
    "study grid": Command(
        STUDY,
        [*ALL, "--over", "batch", "--values", "16"],
        {
            **output(),
            **SEEDS,
            "over": Row("--over epochs", "epochs", [16], also=("batch",)),
            "values": Row("--values 8 64", "batch", [8, 64]),
            **ENSEMBLES,
        },
    ),
    "study integral": Command(STUDY, ALL, {"label_noise": NOISE, **output(), **SEEDS, **LEVELS}),
    "study instability": Command(
        STUDY,
        ["digits-standard"],
        {
            "keep_epoch": Row("--keep-epoch 3", "keep_epoch", refused=True),
            "start_from": Row("--start-from x", "start_from", refused=True),
            "epochs": Row("--epochs 5", "epochs", 5, "--shared 0"),
            **output(),
            **SEEDS,
            "shared": Row("--shared 1 7", "keep_epoch", [1, 7]),
            "models": Row("--models 3 4", "models", [3, 4]),
            **given(draws=2),
        },
        ("recipe",),
    ),
    "reproduce": Command(
        "subspaces.cli.reproduce:run",
        ["along", "--json"],
        {**{name: row for name, row in output().items() if name in ("data", "out", "runs")}, **SEEDS},
        ("names",),
    ),
    "plot": Command(
        "subspaces.evaluations:plot",
        ["along", "one", "two"],
        {"out": Row("-o other.png", "path", Path("other.png")), **given(metric="ece", split="validation")},
        ("name", "runs"),
    ),
    "report": Command(
        "subspaces.evaluations:report",
        ["one", "two"],
        {"out": Row("-o other.html", "path", Path("other.html"))},
        ("runs",),
    ),
    "export": Command(
        "subspaces.api:export",
        ["one", "--out", "one.pt2"],
        {
            "point": Row("--point 0.1 0.9", "point", ["0.1", "0.9"]),
            "out": Row("--out other.pt2", "path", Path("other.pt2")),
            **given(statistics_batches=9, data=Path("there"), trust=True),
            **QUIET,
        },
        ("run",),
    ),
    "predict": Command(
        "subspaces.api:predict", ["one.pt2", "two.png"], {**given(top=3, trust=True), **QUIET}, ("model", "inputs")
    ),
    "data get": Command(
        "subspaces.experiments.data:get", ["mnist"], {"data": Row("--data other", "root", Path("other"))}, ("name",)
    ),
    "data check": Command(
        "subspaces.experiments.data:check", ["mnist"], {"data": Row("--data other", "root", Path("other"))}, ("name",)
    ),
}
ELSEWHERE = {  # tested by what they print, and `code` by what can be imported
    "recipes": {"name"},
    "check": {"runs", "quiet"},
    "data list": set(),
    "data get": {"quiet"},
    "predict": {"format", "out"},
    **{
        name: {"code"}
        for name, command in COMMANDS.items()
        if command.calls.startswith("subspaces.experiments.studies")
    },
    **{name: {"code"} for name in ("train", "evaluate", "export")},
    "reproduce": {"scale", "on", "dry_run", "quiet", "json"},
    "select": {"code", "json", "out"},
}
