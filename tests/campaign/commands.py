"""Command lines from a grammar: the package's own commands and options, with values that nobody expects."""

import random
import re
import shlex
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from campaign import answers, verdict, warm
from campaign.scenes import PICTURE, Scene
from campaign.verdict import Outcome

NUMBERS = ("0", "-1", "1", "2", "3", "7", "0.5", "-0.5", "1.0", "1e-9", "1e20", "1e400", "nan", "inf", "-inf")
LARGE = (str(2**31), str(2**63 - 1), str(2**63), str(2**64), "9" * 30, "9" * 5000)
WORDS = (
    "",
    " ",
    "x",
    "None",
    "½",
    "١",
    "0x10",
    "1_000",
    "--",
    "-",
    ".",
    "..",
    "/",
    "/dev/null",
    "true",
    "a b",
    "\n",
    "ß🙂",
)
PATHS = ("", ".", "..", "nowhere", "file", "file/below", "/dev/null", "/proc/self/mem", "runs", "made", "a" * 300, "~")
NETWORKS = (
    "mlp",
    "lenet",
    "resnet18",
    "json:dumps",
    "..bad:x",
    ":",
    "a:",
    ":b",
    "os:nothing",
    "timm:x",
    "no:thing",
    "mlp:",
)
RECIPES = (
    "digits-standard",
    "digits-line",
    "digits-curve",
    "digits-simplex",
    "digits-swag",
    "digits-sam",
    "digits-integral",
)
CHOICES = {
    "--network": NETWORKS,
    "--method": (
        "standard",
        "line",
        "curve",
        "simplex",
        "swag",
        "fge",
        "ema",
        "sam",
        "integral",
        "early-stopping",
        "x",
    ),
    "--optimizer": ("SGD", "Adam", "LBFGS", "SparseAdam", "Optimizer", "Muon", "lr_scheduler", "sgd", "__name__", ""),
    "--schedule": ("warmup-cosine", "constant", "x", ""),
    "--dataset": ("digits", "mnist", "cifar10", "imagenet", "folder", "x", "../x", ""),
    "--augment": ("plain", "resized-crop", "x", ""),
    "--fingerprint": ("flowers:3:0123456789ab", ":3:0123456789ab", "x", ""),
    "--device": ("cpu", "cuda", "cuda:99", "meta", "mps", "x", ""),
    "--precision": ("auto", "float32", "bfloat16", "float16", ""),
    "--choose-on": ("auto", "validation", "test", "train", ""),
    "--metric": ("accuracy", "nll", "ece", "x", "", "tv", "epoch"),
    "--base-url": ("http://127.0.0.1:9", "file:///etc", "x", "", "http://[", "http://127.0.0.1:99999"),
    "--plane-through": ("RUN", "RUN:0.3", "RUN:2", "RUN:x", "RUN:", ":", "nowhere:0.1", "RUN:nan"),
    "--point": ("midpoint", "ensemble", "family", "selected", "0.3", "1.5", "0.2,0.8", "x", ""),
    "--format": ("safetensors", "pt2", "table", "csv", "json", "x", ""),
    "--init": ("independent", "point", "x"),
    "--epochs": ("0", "-1", "1", "2", "x", "1.5", "", "nan"),
    "--scale": ("smoke", "x", ""),
    "--on": ("digits", "cifar10", "x", ""),
    "--seeds": (*NUMBERS[:6], *LARGE, "x"),
}
PATH_OPTIONS = ("--out", "-o", "--runs", "--data")
SLOW = ("--compile", "--help", "--models", "--draws")
FIGURES = ("along", "betas", "plane", "training", "vertices", "reliability", "selective", "diversity", "shift", "x", "")
PICTURES = (str(PICTURE), str(PICTURE.parent))
NAMES = ("mnist", "cifar10", "digits", "tiny-imagenet", "imagenet", "folder", "x", "")


def tree() -> dict[tuple[str, ...], Any]:
    """Return the commands of the package by their words."""
    from subspaces import cli

    found = {}

    def walk(command: Any, words: tuple[str, ...]) -> None:
        inner = getattr(command, "commands", None)
        if inner is None:
            found[words] = command
        for name, one in (inner or {}).items():
            walk(one, (*words, name))

    walk(cli.app, ())
    return found


class Commands:
    """The cases of odd command lines."""

    kind = "commands"

    def __init__(self, made: dict[str, Scene], base: Path) -> None:
        self.scene = made["evaluated"]
        self.tree = {words: one for words, one in tree().items() if words != ("data", "list")}
        self.runs = [f"runs/{path.name}" for path in sorted((self.scene.folder / "runs").iterdir())]

    def label(self, index: int, chance: random.Random) -> str:
        """Return which command it is."""
        return " ".join(chance.choice(sorted(self.tree)))

    def run(self, index: int, chance: random.Random, folder: Path) -> Outcome:
        """Run a random command beside an evaluated run."""
        words = chance.choice(sorted(self.tree))
        argv = self.line(words, chance)
        self.scene.copy(folder)
        (folder / "file").write_text("content")
        (folder / "made").mkdir()
        ended = warm.command(argv, folder, first=answers.draw_data)
        told = words[-1] == "check" and ended.code == 1 and ended.out  # what is wrong is its answer
        if words[-1] == "predict":  # which also says what it cannot read
            ended = replace(ended, err=re.sub(r"^skipped .*\n", "", ended.err, flags=re.MULTILINE))
        bad = verdict.crashed(ended) or (verdict.unclear(ended) if ended.code and not told else "")
        good = "refused" if ended.code else "harmless"
        text = f"{shlex.join(argv)[:300]}"
        return Outcome(self.kind, index, " ".join(words), text, good, bad, ended.seconds)

    def line(self, words: tuple[str, ...], chance: random.Random) -> list[str]:
        """Return a command with arguments that are mostly right and options that are mostly not."""
        params = self.tree[words].params
        arguments = [
            value for one in params if not one.opts[0].startswith("-") for value in self._argument(one, chance)
        ]
        flags = {name for one in params for name in one.opts}
        fixed = [["--quiet"]] * ("--quiet" in flags and chance.random() < 0.9)
        fixed += [["--epochs", "1"]] * ("--epochs" in flags) + [["--no-tensorboard"]] * ("--tensorboard" in flags)
        fixed += [["--dry-run"]] * (words[0] in ("study", "reproduce"))
        fixed += [["--scale", "smoke"]] * (words[0] == "reproduce")
        options = [one for one in params if one.opts[0].startswith("-") and not set(one.opts) & set(SLOW)]
        chosen = chance.sample(options, min(len(options), chance.choice((0, 1, 1, 2, 2, 3))))
        line = [*words, *arguments, *chain(*fixed), *chain(*(self._option(one, chance) for one in chosen))]
        line += ["--label-noise", "7"] * (words == ("demo",))  # it takes long where nothing is wrong
        if chance.random() < 0.1:
            line.insert(
                chance.randrange(len(line) + 1), chance.choice((*WORDS, "--nonsense", "-x", "--epoch", "--out="))
            )
        return line

    def _argument(self, param: Any, chance: random.Random) -> list[str]:
        known = {
            "runs": (*self.runs * 4, *PATHS),
            "run": (*self.runs * 4, *PATHS),
            "model": (*self.runs * 4, *PATHS),
            "inputs": (*PICTURES * 4, *PATHS),
            "recipes": (*RECIPES * 2, "x", "", "digits-lin", "cifar10-standard"),
            "recipe": (*RECIPES * 2, "x", ""),
            "names": ("along", "dynamics", "instability", "list", "all", "alon", "x", ""),
            "name": FIGURES if param.metavar == "NAME" else (*NAMES, *RECIPES[:2]),
        }
        many = chance.choice((1, 1, 1, 2, 0)) if param.nargs == -1 else 1
        return [chance.choice(known.get(param.name, WORDS)) for _ in range(many)]

    def _option(self, param: Any, chance: random.Random) -> list[str]:
        name = param.opts[0]
        if getattr(param, "is_flag", False):
            return [chance.choice([*param.opts, *param.secondary_opts])]
        values: tuple[str, ...] = PATHS if set(param.opts) & set(PATH_OPTIONS) else (*NUMBERS * 2, *LARGE, *WORDS)
        values = CHOICES.get(name, values)
        if name == "--plane-through":
            values = tuple(value.replace("RUN", self.runs[0]) for value in values)
        count = 3 if param.nargs == 3 else chance.choice((1, 2)) if param.multiple else 1
        return [name, *(chance.choice(values) for _ in range(count))]
