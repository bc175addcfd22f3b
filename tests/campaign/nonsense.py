"""Command lines with values that nobody expects: an error is one sentence of ours."""

import random
import re
import shlex
from itertools import chain
from pathlib import Path
from typing import Any

from campaign import children, judge, scenes
from campaign.judge import Outcome
from campaign.scenes import Scene
from subspaces import cli

NUMBERS = ("0", "-1", "1", "2", "7", "0.5", "-0.5", "1e-9", "1e20", "1e400", "nan", "-inf", str(2**63), "9" * 5000)
WORDS = ("", " ", "x", "None", "½", "١", "0x10", "--", "-", ".", "..", "/", "/dev/null", "a b", "\n", "ß🙂")
PATHS = ("", ".", "..", "nowhere", "file", "file/below", "/dev/null", "/proc/self/mem", "runs", "made", "a" * 300, "~")
RECIPES = ("digits-standard", "digits-line", "digits-simplex", "digits-swag", "digits-integral", "digits-lin")
CHOICES = {  # some of which are right, so that what comes after is reached
    "--network": ("mlp", "lenet", "resnet18", "json:dumps", "..bad:x", ":", "a:", ":b", "os:nothing", "timm:x", "mlp:"),
    "--method": ("standard", "line", "curve", "simplex", "swag", "fge", "ema", "sam", "early-stopping", "x"),
    "--optimizer": ("SGD", "Adam", "LBFGS", "SparseAdam", "Optimizer", "lr_scheduler", "sgd", "__name__", ""),
    "--dataset": ("digits", "mnist", "cifar10", "imagenet", "folder", "../x", ""),
    "--device": ("cpu", "cuda", "cuda:99", "meta", "mps", "x", ""),
    "--base-url": ("http://127.0.0.1:9", "file:///etc", "x", "", "http://[", "http://127.0.0.1:99999"),
    "--plane-through": ("RUN", "RUN:0.3", "RUN:2", "RUN:x", "RUN:", ":", "nowhere:0.1", "RUN:nan"),
    "--point": ("midpoint", "ensemble", "0.3", "1.5", "0.2,0.8", "x", ""),
    "--metric": ("accuracy", "nll", "x", "", "tv"),
    "--format": ("safetensors", "table", "csv", "json", "x", ""),
    "--epochs": ("0", "-1", "1", "2", "x", "1.5", "", "nan"),
    "--scale": ("smoke", "x", ""),
    "--seeds": (*NUMBERS, "x"),
}
SLOW = ("--compile", "--help", "--models", "--draws")


def tree(parser: Any, words: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Return the parsers of all commands by their words."""
    found = {} if parser.commands else {words: parser}
    for name, one in parser.commands.items():
        found |= tree(one, (*words, name))
    return found


class Commands:
    """The cases of odd command lines."""

    def __init__(self, made: dict[str, Scene], base: Path) -> None:
        self.scene = made["evaluated"]
        self.tree = {words: one for words, one in tree(cli.build()).items() if words != ("data", "list")}
        self.run_folder = scenes._run_in(self.scene.folder)

    def run(self, index: int, chance: random.Random, folder: Path) -> Outcome:
        """Run a random command beside an evaluated run."""
        words = chance.choice(sorted(self.tree))
        argv = self._line(words, chance)
        self.scene.copy(folder)
        (folder / "file").write_text("content")
        (folder / "made").mkdir()
        ended = children.command(argv, folder)
        listed = words[-1] == "check" and ended.code == 1 and ended.out  # what is wrong is its answer
        skipped = re.sub(r"^skipped .*\n", "", ended.err, flags=re.MULTILINE)  # which `predict` lists
        ended = children.Ended(ended.code, ended.out, skipped, ended.hung, ended.strays)
        bad = judge.crashed(ended) or (judge.unclear(ended) if ended.code and not listed else "")
        return Outcome(shlex.join(argv)[:300], "refused" if ended.code else "harmless", bad)

    def _line(self, words: tuple[str, ...], chance: random.Random) -> list[str]:
        """Return a command with arguments that are mostly right and options that are mostly not."""
        params = [one for one in self.tree[words]._actions if one.dest != "help"]
        positional = [one for one in params if not one.option_strings]
        flags = {name for one in params for name in one.option_strings}
        fixed = [["--quiet"]] * ("--quiet" in flags) + [["--epochs", "1"]] * ("--epochs" in flags)
        fixed += [["--dry-run"]] * ("--dry-run" in flags)
        fixed += [["--scale", "smoke"]] * (words[0] == "reproduce")
        options = [one for one in params if one.option_strings and not set(one.option_strings) & set(SLOW)]
        chosen = chance.sample(options, min(len(options), chance.choice((0, 1, 1, 2, 2, 3))))
        arguments = chain(*(self._argument(one, chance) for one in positional))
        line = [*words, *arguments, *chain(*fixed), *chain(*(self._option(one, chance) for one in chosen))]
        line += ["--label-noise", "7"] * (words == ("demo",))  # it takes long where nothing is wrong
        if chance.random() < 0.1:
            line.insert(chance.randrange(len(line) + 1), chance.choice((*WORDS, "--nonsense", "--epoch", "--out=")))
        return line

    def _argument(self, param: Any, chance: random.Random) -> list[str]:
        runs = (*[self.run_folder] * 8, *PATHS)
        recipes = (*RECIPES * 2, "x", "", "cifar10-standard")
        known = {"runs": runs, "run": runs, "model": runs, "recipes": recipes, "recipe": recipes}
        known["names"] = known["name"] = ("along", "training", "dynamics", "list", "mnist", "folder", "alon", "x", "")
        many = chance.choice((1, 1, 1, 2, 0)) if param.nargs in ("*", "+") else 1
        return [chance.choice(known.get(param.dest, WORDS)) for _ in range(many)]

    def _option(self, param: Any, chance: random.Random) -> list[str]:
        names = param.option_strings
        if param.nargs == 0 or any(name.startswith("--no-") for name in names):
            return [chance.choice(names)]
        paths = {"--out", "-o", "--runs", "--data"} & set(names)
        values = CHOICES.get(names[0], PATHS if paths else (*NUMBERS, *WORDS))
        count = param.nargs if isinstance(param.nargs, int) else chance.choice((1, 2)) if param.nargs else 1
        return [names[0], *(chance.choice(values).replace("RUN", self.run_folder) for _ in range(count))]
