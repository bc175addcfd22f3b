"""Exports of runs compute what the networks do, without this package, and say what they are."""

import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from commands import CliRunner
from PIL import Image
from production_cases import Truth, card
from safetensors import safe_open
from torch import nn
from torch.testing import assert_close

import subspaces as ss
from subspaces.cli import main as app
from subspaces.errors import UserError
from subspaces.evaluation.evaluation import Evaluation
from subspaces.experiments.training import Run
from subspaces.export import ExportError, formats
from subspaces.export.description import choose
from subspaces.export.program import anchors, basis, inside

Files = Callable[[str], Path]
Truths = Callable[[str], Truth]
CARDS = ["midpoint.safetensors", "pair.safetensors", "pair.onnx", "family.pt2"]
ALONE = r"""
import re, sys
sys.modules["subspaces"] = None  # whoever imports it fails
import numpy as np, torch
from torch import nn

def plain():
    parts = [nn.Flatten(), nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 64), nn.BatchNorm1d(64)]
    network = nn.Module()
    network.body, network.head = nn.Sequential(*parts, nn.ReLU()), nn.Linear(64, 10)
    network.forward = lambda images: network.head(network.body(images))
    return network

found, given = {}, dict(np.load("given.npz"))
for file in sys.argv[1:]:
    (code,) = re.findall(r"```python\n(.*?)```", open(f"{file}.md").read(), re.DOTALL)
    known = {name: value if file.endswith("onnx") else torch.from_numpy(value) for name, value in given.items()}
    known |= {"torch": torch, "network": plain(), "networks": [plain(), plain()]}
    exec(code, known)
    for name in {"probabilities", "disagreement"} & known.keys():
        found[f"{file} {name}"] = torch.as_tensor(known[name]).detach().numpy()
np.savez("found.npz", **found)
"""


def test_the_lines_of_a_card_load_its_file_without_this_package(exported: Files, truth: Truths) -> None:
    right, (folder,) = truth("line"), {exported(name).parent for name in CARDS}
    mean, std = (np.float32(value)[:, None, None] for value in (right.dataset.mean, right.dataset.std))
    np.savez(folder / "given.npz", images=right.images.numpy(), mean=mean, std=std, alpha=np.float32(0.3))
    command = [sys.executable, "-I", "-W", "ignore", "-c", ALONE, *CARDS]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    found, pair = np.load(folder / "found.npz"), right.together(0.1, 0.9)
    assert pair.disagreement.max() > 1e-4
    wanted = {"midpoint": right.probabilities(0.5), "family": right.probabilities(0.3), "pair": pair.output}
    for name in CARDS:
        probabilities = torch.from_numpy(found[f"{name} probabilities"])
        assert_close(probabilities, wanted[name.partition(".")[0]], atol=1e-6, rtol=0)
        assert (f"{name} disagreement" in found) == (name == "pair.onnx")
    assert_close(torch.from_numpy(found["pair.onnx disagreement"]), pair.disagreement, atol=1e-6, rtol=0)


def test_between_its_anchors_a_family_is_as_far_off_as_its_card_says(exported: Files, truth: Truths) -> None:
    said, right = card(exported("family.onnx")), truth("line")
    session = onnxruntime.InferenceSession(exported("family.onnx"), providers=["CPUExecutionProvider"])
    largest = float(re.findall(r"calibrated networks by at most (\S+)\.\n", said)[0])
    assert "measured at 11 points" in said
    assert 0 < largest < 0.1
    images, off = right.dataset.test.images[:32].float() / 255, []  # type: ignore[union-attr]
    for alpha in (0.05, 0.35, 0.65, 0.95):
        (found,) = session.run(None, {"images": images.numpy(), "alpha": np.array(alpha, np.float32)})
        with torch.no_grad():
            fresh = right.network(alpha)(right.scaled(images)).softmax(-1)
        off.append(float((fresh - torch.from_numpy(found)).abs().max()))
    assert max(off) == pytest.approx(largest, rel=0.1)


def test_every_format_holds_the_metadata(exported: Files, trained: Files) -> None:
    with safe_open(exported("midpoint.safetensors"), "pt") as file:
        weights = file.metadata()
    extra = {"metadata.json": ""}
    torch.export.load(exported("midpoint.pt2"), extra_files=extra)
    session = onnxruntime.InferenceSession(exported("pair.onnx"), providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["n", 1, 8, 8]
    assert session.get_outputs()[0].shape == ["n", 10]
    for header in (weights, json.loads(extra["metadata.json"]), session.get_modelmeta().custom_metadata_map):
        assert (header["format"], header["network"]) == ("subspaces-export", "mlp")
        assert json.loads(header["classes"]) == list("0123456789")
        assert json.loads(header["image_shape"]) == [1, 8, 8]
        assert [len(json.loads(header[name])) for name in ("mean", "std")] == [1, 1]
        assert header["commit"] == Run.open(trained("line")).starts()[-1]["commit"]
        assert json.loads(header["recipe"])["name"] == "digits-line"
    assert weights["point"] == "midpoint"


def test_no_file_holds_a_pickle_or_where_the_code_was(exported: Files) -> None:
    with zipfile.ZipFile(exported("midpoint.pt2")) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        told = archive.read("archive/models/model.json")
    assert [size for name, size in sizes.items() if name.endswith(".pt")] == [0]
    for content in (told, exported("pair.onnx").read_bytes()):
        assert b"/subspaces/" not in content
        assert b"site-packages" not in content


def test_a_card_holds_the_numbers_of_the_evaluation(exported: Files, trained: Files) -> None:
    rows = Evaluation.load(trained("line")).rows
    row = next(row for row in rows if row.alphas == [0.1, 0.9] and row.average == "probabilities")
    tables = [line for line in card(exported("pair.onnx")).splitlines() if line.startswith("| ") and "|" in line[2:]]
    head, _, line = tables[-3:]
    cells = dict(zip(head.split(" | "), line.split(" | "), strict=True))
    assert (cells["accuracy %"], cells["NLL"]) == (f"{100 * row.accuracy:.2f}", f"{row.nll:.4f}")
    assert f"| {row.split} | {row.count} |" in line


def test_a_card_says_where_it_comes_from(exported: Files, trained: Files, tmp_path: Path) -> None:
    said = card(exported("midpoint.pt2"))
    seed = Run.open(trained("line")).recipe.seed
    for part in ("digits-line", "1,200 training images", f"| seed | {seed} |", "| data set | digits |", "0, 1, 2, 3"):
        assert part in said
    assert "Not evaluated." in card(ss.export(trained("standard"), tmp_path / "one.safetensors", progress=False))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"point": "middle"}, "expected 'midpoint', 'ensemble', 'family', or a number in"),
        ({"point": 1.5}, "not a point of Line"),
        ({"point": True}, "expected"),
        ({"point": []}, "point=[]: expected one point or more"),
        ({"example": 3}, "a run brings its own"),
        ({"path": "."}, "ends in .safetensors, .pt2 or .onnx"),
        ({"path": "there/one.pt2"}, "there is no folder"),
        ({"path": "one.bin"}, "ends in .safetensors, .pt2 or .onnx"),
        ({"statistics_batches": 0}, "at least 1"),
    ],
)
def test_what_cannot_be_exported_of_a_run(settings: dict[str, Any], said: str, trained: Files, tmp_path: Path) -> None:
    path = tmp_path / settings.pop("path", "one.pt2")
    with pytest.raises((UserError, FileNotFoundError, IsADirectoryError), match=re.escape(said)):
        ss.export(trained("line"), path, **settings, progress=False)
    assert list(tmp_path.iterdir()) == []


def test_one_network_has_no_family_no_ensemble_and_no_points(trained: Files, tmp_path: Path) -> None:
    for point in ("family", [0.1, 0.9]):
        with pytest.raises(ExportError, match=re.escape(f"point={point!r}: ")):
            ss.export(trained("standard"), tmp_path / "one.pt2", point=point, progress=False)
    with pytest.raises(ExportError, match="in the folder of a run"):
        ss.export(trained("line"), trained("line") / "family.safetensors", progress=False)


def test_nothing_is_written_that_computes_something_else(trained: Files, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(formats, "TOLERANCE", -1.0)
    with pytest.raises(ExportError, match="nothing was written"):
        ss.export(trained("standard"), tmp_path / "one.pt2", progress=False)
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"pip install 'subspaces\[onnx\]'"):
        ss.export(trained("standard"), tmp_path / "one.onnx", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_onnxruntime_sends_nothing_and_leaves_no_file(tmp_path: Path) -> None:
    """And `subspaces.export` stays a function when its package is imported, which imports no templates."""
    script = """import os, sys, subspaces as ss
from subspaces.export import formats
assert "jinja2" not in sys.modules
formats.require("this", "onnxruntime")
print(ss.export.__name__, os.environ.get("ORT_DISABLE_TELEMETRY"))"""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    command = [sys.executable, "-W", "error::ImportWarning", "-c", script]
    ended = subprocess.run(
        command, capture_output=True, text=True, env={**environment, "TMPDIR": str(tmp_path)}, check=False
    )
    assert ended.stdout.strip() == "export None", ended.stderr
    assert not [each for each in tmp_path.iterdir() if not each.name.startswith("torchinductor")]


# Names, which are neither Markdown nor HTML nor an order to a terminal


NAMES = [
    "<script>alert(1)</script>",
    "a|b",
    "![x](http://example.org/x.png)",
    "`code` *strong* _em_ ~~gone~~",
    "www.example.org",
    "\x1b[31mred\nline",
    "&lt;b&gt;",
]
SPECIAL = re.compile(r"<|(?<!\\)[`*_\[\]|~]|://|www\\.|&(?!(lt|gt|amp|#\d+);)|[^ -~\n…×±≥·–]")


def test_no_name_has_a_meaning_in_a_card(tmp_path: Path) -> None:
    odd = type("<b>Net</b>", (nn.Sequential,), {})
    network = odd(nn.Flatten(), nn.Linear(8, len(NAMES)))
    file = tmp_path / "<i>`a_b`.pt2"
    ss.export(network, file, example=torch.rand(3, 2, 2, 2), classes=NAMES, progress=False)
    before, code, after = re.split(r"```(?:python)?\n", card(file))
    outside = before + after
    (row,) = (line for line in outside.splitlines() if line.startswith("| classes |"))
    cell = row.removeprefix("| classes |").removesuffix(" |")
    assert not SPECIAL.search(cell), SPECIAL.search(cell)
    shown = re.sub(r"\\([`*_\[\]|~\\])", r"\1", unescape(cell)).partition(": ")[2]
    assert shown == ", ".join([*NAMES[:5], r"\x1b[31mred line", NAMES[6]])
    assert "<" not in outside
    compile(code, "card", "exec")


def test_names_of_classes_and_files_do_not_reach_the_terminal_raw(tmp_path: Path) -> None:
    model = tmp_path / "net.onnx"
    classes = ["\x1b]0;title\x07[b]"] * 2
    network = nn.Sequential(nn.Flatten(), nn.Linear(4, 2))
    ss.export(network, model, example=torch.rand(3, 1, 2, 2), classes=classes, progress=False)
    Image.new("L", (2, 2)).save(tmp_path / "a\x1b[2J.png")
    arguments = ["predict", model, tmp_path / "a\x1b[2J.png", tmp_path / "c\x1b.png", "--quiet"]
    for format in ("table", "csv"):
        ended = CliRunner().invoke(app, [*map(str, arguments), "--format", format], env={"COLUMNS": "300"})
        assert ended.exit_code == 0
        assert r"\x1b]0;title\x07[b]" in ended.stdout
        assert r"a\x1b[2J.png" in ended.stdout
        assert r"c\x1b.png" in ended.stderr
        assert not re.search(r"[^ -~\n─━…]", ended.stdout + ended.stderr)


# What a program interpolates, and what points may be called


SHAPES = [ss.Line(), ss.Bezier(), ss.Simplex(2), ss.Simplex(3), ss.Simplex(5)]


def double(alpha: Any) -> torch.Tensor:
    return torch.tensor(alpha, dtype=torch.float64)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_each_anchor_is_its_own(shape: ss.Shape) -> None:
    places = anchors(shape)
    found = torch.stack([basis(shape, double(place)) for place in places])
    assert_close(found, torch.eye(len(places), dtype=torch.float64))
    alpha = shape.sample((), lambda size: torch.rand(size, dtype=torch.float64))
    assert_close(basis(shape, alpha).sum(), torch.ones((), dtype=torch.float64))
    assert_close(inside(shape, alpha), alpha)
    off = inside(shape, torch.tensor([2.0] * shape.vertices if shape.point else 1.5))
    assert_close(off.sum(), torch.tensor(1.0))


def test_a_basis_is_exact_for_what_bends_no_more_than_it_does() -> None:
    """Straight between the points of a line, and quadratic on a simplex."""
    line, triangle = ss.Line(), ss.Simplex(3)
    assert_close(basis(line, double(0.234)) @ (3 * double(anchors(line)) - 1), double(3 * 0.234 - 1))

    def bent(x: torch.Tensor) -> torch.Tensor:
        return x[..., 0] ** 2 + 2 * x[..., 0] * x[..., 1] - 3 * x[..., 2] ** 2 + x[..., 1]

    alpha = double([0.2, 0.5, 0.3])
    assert_close(basis(triangle, alpha) @ bent(double(anchors(triangle))), bent(alpha))


def test_a_simplex_is_its_networks_at_vertices_and_on_the_middles_of_edges(exported: Any, truth: Any) -> None:
    """It was trained with one alpha for each layer, and takes one for all."""
    program, right = torch.export.load(exported("simplex.pt2")).module(), truth("simplex")
    for place in ([0.0, 1.0, 0.0], [0.5, 0.0, 0.5]):
        assert_close(program(right.images, torch.tensor(place)), right.probabilities(place), atol=1e-6, rtol=0)
    assert "measured at 6 points" in card(exported("simplex.pt2"))


@pytest.mark.parametrize(
    ("point", "shape", "alphas"),
    [
        ("midpoint", ss.Line(), [0.5]),
        ("0.3", ss.Line(), [0.3]),
        ("ensemble", ss.Bezier(), [0.1, 0.9]),
        ([0.2, 0.3, 0.5], ss.Simplex(3), [[0.2, 0.3, 0.5]]),
        (torch.tensor([0.25, 0.75]), ss.Simplex(2), [[0.25, 0.75]]),
        (["1,0", "0,1"], ss.Simplex(2), [[1.0, 0.0], [0.0, 1.0]]),
        ("ensemble", ss.Simplex(2), [[1.0, 0.0], [0.0, 1.0]]),
    ],
)
def test_points_as_one_may_write_them(point: Any, shape: ss.Shape, alphas: list[Any]) -> None:
    chosen = choose(point, shape, layers=9)
    assert list(chosen.alphas) == alphas
    assert chosen.kind == ("network" if len(alphas) == 1 else "ensemble")
