"""The examples of the docstrings run as they are printed, and every public name has one."""

import ast
import contextlib
import doctest
import importlib
import inspect
import re
import socket
import types
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from pretended import Pretended
from torch import Tensor, nn
from torch.nn import functional as F

import subspaces as ss
from subspaces import evaluation
from subspaces.reports.figures import style

ROOT = Path(__file__).parent.parent
CLASSES = (ss.Subspace, ss.Evaluation, ss.Ensemble, ss.Selection)
CLASSES += (ss.Shape, ss.Point, ss.Line, ss.Bezier, ss.Simplex)
PLUMBING = {"begin_statistics", "keep_statistics", "check_call"}  # what the parts of core call
WITHOUT = {  # which module of the tests runs the same code
    "subspaces.core.pretrained.Pretrained.from_pretrained": "core/test_hub.py",
    "subspaces.core.pretrained.Pretrained.push_to_hub": "core/test_hub.py",
    "subspaces.integrations.peft.family_of_adapters": "integrations/test_peft.py",
    "subspaces.integrations.transformers.SubspaceTrainer": "integrations/test_hf_trainer.py",
    "subspaces.experiments.studies.instability.study_instability": "experiments/studies/test_instability.py",
}


def examples() -> dict[str, str]:
    """Return the `Example:` blocks of all docstrings, by the dotted name of what they belong to."""
    found = {}
    for path in sorted((ROOT / "subspaces").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for name, text in docstrings(ast.parse(path.read_text()), module):
            if ">>>" in text:
                head, mark, block = text.partition("\nExample:\n")
                assert (">>>" in head, bool(mark)) == (False, True), f"{name}: expected its code under `Example:`"
                found[name] = inspect.cleandoc(block)
    return found


def docstrings(node: Any, name: str) -> Iterator[tuple[str, str]]:
    yield name, ast.get_docstring(node) or ""
    for each in node.body:
        if isinstance(each, ast.ClassDef | ast.FunctionDef):
            yield from docstrings(each, f"{name}.{each.name}")


EXAMPLES = examples()


# Names that the examples use


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x))

    def embed(self, x: Tensor) -> Tensor:
        return self.body(x)


def of_vectors() -> dict[str, Any]:
    """Return what most examples use: a network, families, and loaders of four batches."""
    torch.manual_seed(0)
    loader = [(torch.randn(16, 5), torch.randint(3, (16,))) for _ in range(4)]
    loaders = dict.fromkeys(("loader", "train_loader", "test_loader", "held_out", "labelled"), loader)
    family = ss.Subspace(Net, ss.Line(), seed=0)
    networks = {"net": family.at(0.5), "other": family.at(0.2), "third": Net()}
    x, y = loader[0]
    anchors = dict.fromkeys(("anchor", "positive", "negative"), x)
    return {"make_net": Net, "family": family, "x": x, "y": y, "device": "cpu", **loaders, **networks, **anchors}


def of_images() -> dict[str, Any]:
    """Return what examples with images use."""
    images = torch.rand(16, 1, 8, 8)
    found = {"image_loader": [(images, torch.randint(3, (16,)))], "noise_loader": [(torch.rand(16, 1, 8, 8), None)]}
    family = ss.Subspace(lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 3)), ss.Line())
    return {"family": family, "images": images, **found}


IMAGES = ("export", "predict", "Corruptions", "row")
QUIET: dict[str, Any] = {"show": "quiet", "device": "cpu"}


@pytest.fixture
def names(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """The names of an example, whose files are in an empty folder, and what it adds only as long as it runs."""
    monkeypatch.chdir(tmp_path)
    package = types.SimpleNamespace(**{name: getattr(ss, name) for name in ss.__all__}, evaluation=evaluation)
    found = {"ss": package, "torch": torch, "nn": nn, "F": F, "partial": partial, "contextlib": contextlib}
    found |= of_vectors() | (of_images() if request.param.rpartition(".")[2] in IMAGES else {})
    prepare(request.param, found, monkeypatch)
    catalogues: list[Any] = [evaluation.METRICS, evaluation.ANSWERS]
    before = [set(catalogue) for catalogue in catalogues]
    yield found
    for catalogue, known in zip(catalogues, before, strict=True):
        for name in set(catalogue) - known:
            catalogue.remove(name)
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def prepare(example: str, names: dict[str, Any], patch: pytest.MonkeyPatch) -> None:
    """Make what an example takes for granted: files, a process group, and runs that need no training."""
    kind, package = example.rpartition(".")[2], names["ss"]
    if example == "subspaces.experiments.training.api.train":
        package.train = lambda recipe, **changes: ss.train(recipe, **{**changes, **QUIET, "epochs": 1})
    elif kind == "check":
        ss.train("digits-standard", epochs=1, **QUIET)
    elif ".experiments." in example:
        for module in ("studies.setting", "studies.compare", "opening"):
            Pretended().patch(patch, f"subspaces.experiments.{module}")
        patch.setattr("subspaces.experiments.studies.tables.write_figure", lambda *_: [])
        patch.setattr(style, "save", lambda figure, path: path.touch())
        patch.setattr(importlib.import_module("subspaces.experiments.studies.compare"), "write_report", lambda e, p: p)
        package.compare, package.reproduce = (partial(each, **QUIET) for each in (ss.compare, ss.reproduce))
        quiet = {name: partial(getattr(ss.studies, name), **QUIET) for name in ss.studies.__all__}
        package.studies = types.SimpleNamespace(**quiet)
    elif kind == "predict":
        Path("photos").mkdir()
        Image.new("L", (8, 8)).save("photos/one.png")
        ss.export(names["family"], "midpoint.onnx", example=names["images"], progress=False)
    elif kind == "distribute":
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
        for name, value in {**place, "RANK": "0", "WORLD_SIZE": "1"}.items():
            patch.setenv(name, value)
        names["dist"] = torch.distributed
    elif kind == "load":
        ss.save(names["family"], "family.safetensors")
    elif kind == "FileError":
        Path("another.safetensors").write_bytes(b"not a family")
    if "evaluations." in example:
        loaders = dict.fromkeys(("test", "validation", "statistics"), names["loader"])
        names["evaluation"] = ss.evaluate(names["family"], **loaders, progress=False)
        names["evaluation"].save("evaluation.json")


# The tests


class Checker(doctest.OutputChecker):
    """Compares what an example prints where the docstring says what that is."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return not want or super().check_output(want, got, optionflags)


@pytest.mark.parametrize("names", sorted(EXAMPLES.keys() - WITHOUT), indirect=True, ids=str)
def test_an_example_runs_as_it_is_printed(names: dict[str, Any], request: pytest.FixtureRequest) -> None:
    name = request.node.callspec.params["names"]
    test = doctest.DocTestParser().get_doctest(EXAMPLES[name] + "\n", names, name, None, 0)
    assert test.examples
    failed: list[str] = []
    runner = doctest.DocTestRunner(Checker(), optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=failed.append)
    assert not failed, "".join(failed)


def code_of(thing: Any) -> str:
    """Return the examples of a public thing, which are collected from the files."""
    text = inspect.getdoc(thing) or ""
    return text.partition("\nExample:\n")[2] if ">>>" in text else ""


@pytest.mark.parametrize("name", [name for name in ss.__all__ if name != "__version__"])
def test_a_public_name_has_an_example_and_a_place_in_the_reference(name: str) -> None:
    assert inspect.cleandoc(code_of(getattr(ss, name))) in EXAMPLES.values(), f"{name}: expected an Example:"
    pages = "".join(page.read_text() for page in (ROOT / "docs" / "reference").glob("*.md"))
    assert f"\n::: subspaces.{name}\n" in pages


def methods() -> list[Any]:
    """Return the public methods, but for those of every `nn.Module`, which do here what they do there."""
    found = []
    for kind in CLASSES:
        for name in dir(kind):
            owner = next(each for each in kind.__mro__ if name in vars(each))
            usual = name.startswith("_") or name in PLUMBING or (name != "forward" and hasattr(nn.Module, name))
            if owner.__module__.startswith("subspaces") and not usual and callable(getattr(kind, name)):
                found.append(pytest.param(kind, name, id=f"{kind.__name__}.{name}"))
    return found


@pytest.mark.parametrize(("kind", "name"), methods())
def test_a_method_has_an_example_of_its_own_or_in_its_class(kind: type, name: str) -> None:
    if not (own := code_of(getattr(kind, name))):
        of_classes = "".join(code_of(each) for each in kind.__mro__ if each.__module__.startswith("subspaces"))
        call = r"(family|line|pair|\.eval\(\))\(" if name == "forward" else rf"\.{name}\("
        assert re.search(call, of_classes), f"{kind.__name__}.{name}: expected an Example: with a call of it"
    else:
        assert inspect.cleandoc(own) in EXAMPLES.values()


def test_examples_that_are_left_to_other_tests_are_there() -> None:
    assert set(WITHOUT) <= set(EXAMPLES)
    assert all((ROOT / "tests" / name).is_file() for name in WITHOUT.values())
