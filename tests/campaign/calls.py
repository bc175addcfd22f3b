"""Calls of the public functions with wrong types: an error is a sentence of ours, not one of Python's."""

import inspect
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from campaign import verdict, warm
from campaign.scenes import Scene
from campaign.verdict import Outcome

GOOD = (ValueError, TypeError, IndexError, OSError, ImportError)


def odd() -> dict[str, Any]:
    """Return values that are of the wrong type for most arguments, by what they are called."""
    import torch
    from torch import nn

    return {
        "None": None,
        "True": True,
        "5": 5,
        "-1": -1,
        "0": 0,
        "2**70": 2**70,
        "1.5": 1.5,
        "nan": math.nan,
        "'x'": "x",
        "''": "",
        "b'x'": b"x",
        "[]": [],
        "[None]": [None],
        "['x', 5]": ["x", 5],
        "{}": {},
        "{'a': 1}": {"a": 1},
        "object()": object(),
        "int": int,
        "len": len,
        "torch.zeros(2)": torch.zeros(2),
        "torch.tensor(nan)": torch.tensor(math.nan),
        "nn.Linear(2, 2)": nn.Linear(2, 2),
        "nn.ReLU()": nn.ReLU(),
        "Path('nowhere')": Path("nowhere"),
        "range(3)": range(3),
        "iter([])": iter([]),
        "1j": 1j,
    }


def fitting(run: str) -> dict[str, Any]:
    """Return a good value for arguments of these names, so that the others are reached."""
    import torch
    from torch import nn

    import subspaces as ss

    family = ss.Subspace(nn.Linear(3, 2), ss.Line())
    return {
        "module": family,
        "network": nn.Linear(3, 2),
        "shape": ss.Line(),
        "path": "family.safetensors",
        "recipe": "digits-standard",
        "runs": run,
        "batches": [torch.zeros(4, 3)],
        "loader": [torch.zeros(4, 3)],
        "name": "mlp",
        "classes": 3,
        "image_shape": (1, 4, 4),
        "modules": [nn.Linear(3, 2), nn.Linear(3, 2)],
        "members": [nn.Linear(3, 2), nn.Linear(3, 2)],
        "alpha": 0.3,
        "alphas": [0.1, 0.9],
        "index": 0,
        "beta": 1.0,
        "m": 3,
    }


def functions() -> dict[str, Callable[..., Any]]:
    """Return what a user may call: the public names, and the methods of a family."""
    import torch
    from torch import nn

    import subspaces as ss

    family = ss.Subspace(nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2)), ss.Simplex(3))
    found = {f"ss.{name}": getattr(ss, name) for name in ss.__all__}
    found |= {f"ss.networks.{name}": getattr(ss.networks, name) for name in ("build", "head_name", "MLP", "LeNet")}
    methods = (name for name, _ in inspect.getmembers(ss.Subspace, inspect.isfunction) if name in vars(ss.Subspace))
    found |= {f"family.{name}": getattr(family, name) for name in methods if not name.startswith("_")}
    found["Subspace.from_modules"] = ss.Subspace.from_modules
    found["family(x, alpha=…)"] = lambda alpha: family(torch.zeros(4, 3), alpha=alpha)
    del found["family.forward"]
    left = ("ss.__version__", "ss.studies", "ss.networks", "ss.FileError", "ss.UserError", "ss.Shape")
    return {name: one for name, one in found.items() if callable(one) and name not in left}


class Calls:
    """The cases of odd calls."""

    kind = "calls"

    def __init__(self, made: dict[str, Scene], base: Path) -> None:
        self.scene = made["evaluated"]
        self.run_folder = f"runs/{next((self.scene.folder / 'runs').iterdir()).name}"

    def label(self, index: int, chance: random.Random) -> str:
        """Return nothing: what is called is known to the child alone."""
        return ""

    def run(self, index: int, chance: random.Random, folder: Path) -> Outcome:
        """Call a function with one or two odd values."""
        self.scene.copy(folder)
        ended = warm.child(lambda: self._call(chance), folder)
        name, text, wrong = json.loads(ended.out.splitlines()[-1]) if ended.out.endswith("]\n") else ("?", "", "")
        bad = verdict.crashed(ended) or wrong
        good = "refused" if "->" in text else "harmless"
        return Outcome(self.kind, index, name.partition(".")[0].partition("(")[0], text, good, bad, ended.seconds)

    def _call(self, chance: random.Random) -> None:
        """Make the call in a child, and print what came of it."""
        known = functions()
        name = chance.choice(sorted(known))
        values, good = odd(), fitting(self.run_folder)
        given, told = {}, {}
        parameters = inspect.signature(known[name]).parameters.values()
        wrong = chance.choice([one.name for one in parameters] or [""])
        positional, keywords = [], {}
        for one in parameters:
            if one.kind is one.VAR_KEYWORD:
                keywords |= {"epochs": 1} if name in ("ss.train", "ss.compare") else {}
            elif one.kind is not one.VAR_POSITIONAL and (one.default is one.empty or one.name == wrong):
                label = (
                    f"a good {one.name}" if one.name != wrong and one.name in good else chance.choice(sorted(values))
                )
                if label == "nn.ReLU()" and one.name in ("groups", "penalised", "forward", "select"):
                    label = "5"  # what a function of the caller's says is its own affair
                given[one.name], told[one.name] = values.get(label, good.get(one.name)), label
                if one.kind is one.POSITIONAL_ONLY:
                    positional.append(given.pop(one.name))
        text = f"{name}({', '.join(f'{key}={label}' for key, label in told.items())})"
        print(json.dumps([name, text, "it hung, or ended the process"]), flush=True)
        try:
            known[name](*positional, **given, **keywords)
        except Exception as error:
            message, kind = " ".join(str(error).split()), type(error)
            text += f" -> {kind.__name__}: {message[:200]}"
            ours = kind.__module__.startswith("subspaces") or issubclass(kind, GOOD)
            bad = "" if ours and message and not verdict.raw(message) else f"{kind.__name__}: {message[:200]}"
            print(json.dumps([name, text, bad]), flush=True)
        else:
            print(json.dumps([name, text, ""]), flush=True)
