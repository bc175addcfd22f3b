"""Exports compute what the networks do, without this package, and say what they are."""

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from production_cases import Truth
from safetensors import safe_open
from torch import nn
from torch.testing import assert_close

import subspaces as ss
from subspaces.evaluation.record import Record
from subspaces.experiments.evaluating.selection import select_run
from subspaces.experiments.training import Execution, Run
from subspaces.export import formats
from subspaces.export.errors import ExportError, ModelError
from subspaces.networks import MLP

Files = Callable[[str], Path]
Truths = Callable[[str], Truth]
ALONE = """
import sys
sys.modules["subspaces"] = None  # whoever imports it fails
import numpy as np, torch, onnxruntime
from safetensors.torch import load_file
folder, n = sys.argv[1], torch.nn
images = np.load(f"{folder}/images.npy")
program = torch.export.load(f"{folder}/midpoint.pt2").module()
found = {"pt2": program(torch.from_numpy(images)).numpy(), "pt2 one": program(torch.from_numpy(images[:1])).numpy()}
parts = [n.Flatten(), n.Linear(64, 64), n.BatchNorm1d(64), n.ReLU(), n.Linear(64, 64), n.BatchNorm1d(64), n.ReLU()]
network = n.Module()
network.body, network.head = n.Sequential(*parts), n.Linear(64, 10)
network.load_state_dict(load_file(f"{folder}/midpoint.safetensors"), strict=True)
found["logits"] = network.head(network.eval().body(torch.from_numpy(images))).detach().numpy()
session = onnxruntime.InferenceSession(f"{folder}/pair.onnx", providers=["CPUExecutionProvider"])
found["onnx"], found["onnx disagreement"] = session.run(["probabilities", "disagreement"], {"images": images})
session = onnxruntime.InferenceSession(f"{folder}/family.onnx", providers=["CPUExecutionProvider"])
for alpha in (0.0, 0.3, 1.0):
    found[f"family {alpha}"], = session.run(None, {"images": images, "alpha": np.array(alpha, np.float32)})
np.savez(f"{folder}/found.npz", **found)
"""


@pytest.fixture(scope="session")
def alone(exported: Files, truth: Truths) -> dict[str, torch.Tensor]:
    """What the files say in a process that cannot import this package."""
    names = ("midpoint.pt2", "midpoint.safetensors", "pair.onnx", "family.onnx")
    (folder,) = {exported(name).parent for name in names}
    np.save(folder / "images.npy", truth("line").images.numpy())
    command = [sys.executable, "-I", "-W", "ignore", "-c", ALONE, str(folder)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    with np.load(folder / "found.npz") as found:
        return {name: torch.from_numpy(found[name]) for name in found.files}


def test_a_program_of_torch_needs_torch_alone(alone: dict[str, torch.Tensor], truth: Truths) -> None:
    expected = truth("line").probabilities(0.5)
    assert_close(alone["pt2"], expected, atol=1e-6, rtol=0)
    assert_close(alone["pt2 one"], expected[:1], atol=1e-6, rtol=0)


def test_weights_load_into_a_plain_network(alone: dict[str, torch.Tensor], truth: Truths) -> None:
    with torch.no_grad():
        assert_close(alone["logits"], truth("line").network(0.5)(truth("line").images), atol=1e-5, rtol=0)


def test_an_ensemble_is_one_program_that_answers_as_an_ensemble_does(
    alone: dict[str, torch.Tensor], truth: Truths
) -> None:
    expected = truth("line").together(0.1, 0.9)
    assert_close(alone["onnx"], expected.output, atol=1e-6, rtol=0)
    assert_close(alone["onnx disagreement"], expected.disagreement, atol=1e-6, rtol=0)
    assert expected.disagreement.max() > 1e-4


def test_a_family_takes_its_point_as_an_input(alone: dict[str, torch.Tensor], truth: Truths) -> None:
    for alpha in (0.0, 0.3, 1.0):  # at which statistics were measured
        assert_close(alone[f"family {alpha}"], truth("line").probabilities(alpha), atol=1e-6, rtol=0)
    assert (alone["family 0.0"] - alone["family 1.0"]).abs().max() > 0.01


def test_between_its_anchors_a_family_is_as_far_off_as_its_card_says(exported: Files, truth: Truths) -> None:
    said = card(exported("family.onnx"))
    session = onnxruntime.InferenceSession(exported("family.onnx"), providers=["CPUExecutionProvider"])
    largest = float(re.findall(r"calibrated networks by at most (\S+)", said)[0])
    assert "measured at 11 points" in said
    assert 0 < largest < 0.1
    images = truth("line").dataset.test.images[:32].float() / 255  # type: ignore[union-attr]
    scaled = (images - truth("line").dataset.mean[0]) / truth("line").dataset.std[0]
    off = []
    for alpha in (0.05, 0.35, 0.65, 0.95):
        (found,) = session.run(None, {"images": images.numpy(), "alpha": np.array(alpha, np.float32)})
        with torch.no_grad():
            off.append((truth("line").network(alpha)(scaled).softmax(-1) - torch.from_numpy(found)).abs().max())
    assert float(max(off)) == pytest.approx(largest, rel=0.1)


def card(path: Path) -> str:
    return path.with_name(f"{path.name}.md").read_text()


def test_a_family_as_weights_is_what_load_reads(exported: Files, trained: Files) -> None:
    found = ss.load(exported("family.safetensors"), lambda: MLP(64, 10))
    expected = ss.load(trained("line") / "family.safetensors", lambda: MLP(64, 10))
    assert all(torch.equal(found.omega[name], expected.omega[name]) for name in expected.omega)
    with safe_open(exported("family.safetensors"), "pt") as file:
        assert json.loads(file.metadata()["export.classes"]) == list("0123456789")


def test_the_header_says_what_the_weights_are_of(exported: Files, trained: Files) -> None:
    with safe_open(exported("midpoint.safetensors"), "pt") as file:
        header = file.metadata()
    assert json.loads(header["classes"]) == list("0123456789")
    assert json.loads(header["image_shape"]) == [1, 8, 8]
    assert [len(json.loads(header[name])) for name in ("mean", "std")] == [1, 1]
    assert (header["network"], header["point"]) == ("mlp", "midpoint")
    assert header["commit"] == Run.open(trained("line")).starts()[-1]["commit"]
    assert json.loads(header["recipe"])["name"] == "digits-line"


def test_programs_hold_their_metadata(exported: Files) -> None:
    extra = {"metadata.json": ""}
    torch.export.load(exported("midpoint.pt2"), extra_files=extra)
    session = onnxruntime.InferenceSession(exported("pair.onnx"), providers=["CPUExecutionProvider"])
    for header in (json.loads(extra["metadata.json"]), session.get_modelmeta().custom_metadata_map):
        assert header["format"] == "subspaces-export"
        assert json.loads(header["classes"]) == list("0123456789")
    assert session.get_inputs()[0].shape == ["n", 1, 8, 8]
    assert session.get_outputs()[0].shape == ["n", 10]


def test_a_program_for_onnxruntime_predicts(exported: Files, truth: Truths, tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", truth("line").images.numpy())
    expected = truth("line").together(0.1, 0.9)
    found = ss.predict(exported("pair.onnx"), tmp_path / "images.npy", progress=False).predictions
    assert [each.disagreement for each in found] == pytest.approx(expected.disagreement.tolist(), abs=1e-6)
    assert [each.probability for each in found] == pytest.approx(expected.output.max(-1).values.tolist(), abs=1e-6)
    content = exported("pair.onnx").read_bytes()
    with safe_open(exported("pair.safetensors"), "pt") as file:
        place = content.index(file.get_tensor("members.0.head.weight").numpy().tobytes())
    changed = bytearray(content)
    changed[place] ^= 1
    for damaged in (bytes(changed), content[: len(content) // 2], content[:100], b"", b"\0" * 2000):
        (tmp_path / "damaged.onnx").write_bytes(damaged)
        with pytest.raises(ModelError, match=r"use another copy|not written by"):
            ss.predict(tmp_path / "damaged.onnx", tmp_path / "images.npy", progress=False)


def test_no_file_holds_a_pickle_or_where_the_code_was(exported: Files) -> None:
    with zipfile.ZipFile(exported("midpoint.pt2")) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        told = archive.read("archive/models/model.json")
    assert [size for name, size in sizes.items() if name.endswith(".pt")] == [0]
    for content in (told, exported("pair.onnx").read_bytes()):
        assert b"/subspaces/" not in content
        assert b"site-packages" not in content


@pytest.mark.parametrize(("name", "alphas"), [("midpoint.pt2", [0.5]), ("pair.onnx", [0.1, 0.9])])
def test_a_card_holds_the_numbers_of_the_evaluation(
    name: str, alphas: list[float], exported: Files, trained: Files
) -> None:
    record = Record.read(trained("line"))
    average = "probabilities" if len(alphas) > 1 else None
    row = next(row for row in record.rows if row.alphas == alphas and row.average == average)
    head, _, *lines = [line for line in card(exported(name)).splitlines() if line.startswith("| ") and "|" in line[2:]][
        -3:
    ]
    cells = dict(zip(head.split(" | "), lines[0].split(" | "), strict=True))
    assert cells["accuracy %"] == f"{100 * row.accuracy:.2f}"
    assert cells["NLL"] == f"{row.nll:.4f}"
    assert f"| {row.split} | {row.count} |" in lines[0]


def test_a_card_says_where_it_comes_from(exported: Files, trained: Files) -> None:
    said = card(exported("midpoint.pt2"))
    recipe = Run.open(trained("line")).recipe
    for part in ("digits-line", "1,200 training images", f"| seed | {recipe.seed} |", "| data set | digits |", "mlp"):
        assert part in said
    assert 'torch.export.load("midpoint.pt2").module()' in said
    assert "0, 1, 2, 3, 4, 5, 6, 7, 8, 9" in said
    assert re.search(r"differ from the network's by at most \d", said)


@pytest.mark.parametrize(
    "name", ["midpoint.pt2", "midpoint.safetensors", "pair.safetensors", "pair.onnx", "family.onnx"]
)
def test_the_lines_of_a_card_load_its_file(
    name: str, exported: Files, truth: Truths, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(exported(name).parent)
    right, program = truth("line"), not name.endswith("safetensors")
    mean, std = (torch.tensor(value)[:, None, None] for value in (right.dataset.mean, right.dataset.std))
    networks = [MLP(64, 10), MLP(64, 10)]
    images: Any = right.images.numpy() if name.endswith("onnx") else right.images
    names = {"torch": torch, "images": images, "network": networks[0], "networks": networks, "mean": mean, "std": std}
    names["alpha"] = np.array(0.3, np.float32)
    (code,) = re.findall(r"```python\n(.*?)```", card(exported(name)), re.DOTALL)
    exec(code, names)
    expected = {"midpoint": lambda: right.probabilities(0.5), "family": lambda: right.probabilities(0.3)}
    wanted = expected.get(name.partition(".")[0], lambda: right.together(0.1, 0.9).output)()
    assert_close(torch.as_tensor(names["probabilities"]).detach(), wanted, atol=1e-6, rtol=0)
    assert ("disagreement" in names) == (program and name.startswith("pair"))


def test_a_run_that_was_not_evaluated_says_so(trained: Files, tmp_path: Path) -> None:
    path = ss.export(trained("standard"), tmp_path / "one.safetensors", progress=False)
    assert "Not evaluated." in card(path)


def test_a_name_is_made_of_run_and_point(trained: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = ss.export(trained("line"), point="0.3", format="safetensors", progress=False)
    assert path.name == f"{trained('line').name}-at-0.3.safetensors"
    assert {each.name for each in tmp_path.iterdir()} == {path.name, f"{path.name}.md"}


def test_an_export_that_computes_something_else_is_not_written(
    trained: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(formats, "TOLERANCE", -1.0)
    with pytest.raises(ExportError, match="nothing was written"):
        ss.export(trained("standard"), tmp_path / "one.pt2", progress=False)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_library_is_named_with_how_to_get_it(
    trained: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(ImportError, match=r"pip install 'subspaces\[onnx\]'"):
        ss.export(trained("standard"), tmp_path / "one.onnx", progress=False)


def test_the_point_that_was_selected(trained: Files, truth: Truths, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained("line"), tmp_path / trained("line").name))
    found = select_run(
        run, corruption="contrast", examples=300, statistics_batches=2, execution=Execution(device="cpu")
    )
    path = ss.export(run, tmp_path / "one.safetensors", point="selected", progress=False)
    with safe_open(path, "pt") as file:
        weight = file.get_tensor("head.weight")
        assert json.loads(file.metadata()["alphas"]) == [found.alpha]
    assert torch.equal(weight, truth("line").family.at(found.alpha).state_dict()["head.weight"])
    chosen = next(row for row in found.rows if row.name == "chosen")
    assert f"chosen {100 * chosen.accuracy:.2f} % right" in card(path)
    assert f"selected for {found.domain}" in card(path)
    np.save(tmp_path / "array.npy", truth("line").images.numpy())
    said = ss.predict(run, tmp_path / "array.npy", point="selected", progress=False).predictions
    expected = truth("line").probabilities(found.alpha).max(-1).values.tolist()
    assert [each.probability for each in said] == pytest.approx(expected, abs=1e-6)


def test_a_point_for_each_layer(tmp_path: Path) -> None:
    family = ss.Subspace(small, ss.Line())
    point = {"0": 0.2, "4": 0.9}
    path = ss.export(family, tmp_path / "own.safetensors", point=point, statistics=[torch.randn(8, 2, 4, 4)], **OWN)
    with safe_open(path, "pt") as file:
        assert torch.equal(file.get_tensor("4.weight"), family.at(0.9).state_dict()["4.weight"])
        assert torch.equal(file.get_tensor("0.weight"), family.at(0.2).state_dict()["0.weight"])
    assert "| alpha | (0: 0.2, 4: 0.9) |" in card(path)


def test_nothing_is_put_into_the_folder_of_a_run(trained: Files) -> None:
    with pytest.raises(ExportError, match="in the folder of a run"):
        ss.export(trained("line"), trained("line") / "one.safetensors", progress=False)
    assert ss.check(trained("line")) == []


# Networks of the user's own


def small() -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 4))


OWN: dict[str, Any] = {"example": torch.rand(5, 2, 4, 4), "progress": False}


def test_a_network_as_it_is(tmp_path: Path) -> None:
    network = small().train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    mean, std = [0.5, 0.25], [2.0, 4.0]
    path = ss.export(network, tmp_path / "own.pt2", classes=list("abcd"), mean=mean, std=std, **OWN)
    assert network.training
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    x = torch.rand(3, 2, 4, 4)
    scaled = (x - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    with torch.no_grad():
        assert_close(torch.export.load(path).module()(x), network.eval()(scaled).softmax(-1))
    assert "4: a, b, c, d" in card(path)


def test_statistics_are_made_for_a_copy(tmp_path: Path) -> None:
    network = small()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    loader = [(torch.randn(8, 2, 4, 4), torch.zeros(8)) for _ in range(2)]
    path = ss.export(network, tmp_path / "own.safetensors", statistics=loader, **OWN)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    with safe_open(path, "pt") as file:
        assert torch.equal(file.get_tensor("1.running_mean"), ss.recalibrate(network, loader)[1].running_mean)  # type: ignore[index]
        assert file.metadata()["statistics_images"] == "16"


def test_an_ensemble_of_ones_own(tmp_path: Path) -> None:
    ensemble = ss.Ensemble([small().double(), small().double()]).eval()
    path = ss.export(ensemble, tmp_path / "own.pt2", **OWN)
    x = torch.rand(3, 2, 4, 4)
    found = torch.export.load(path).module()(x)
    with torch.no_grad():
        expected = ensemble.predict(x.double())
    assert_close(found[0].double(), expected.output, atol=1e-6, rtol=0)
    assert_close(found[1].double(), expected.disagreement, atol=1e-6, rtol=0)


def test_a_family_of_ones_own_at_a_point(tmp_path: Path) -> None:
    family = ss.Subspace(small, ss.Simplex(3))
    loader = [torch.randn(8, 2, 4, 4)]
    path = ss.export(family, tmp_path / "own.safetensors", point=[0.2, 0.3, 0.5], statistics=loader, **OWN)
    network = small()
    with safe_open(path, "pt") as file:
        network.load_state_dict({name: file.get_tensor(name) for name in file.keys()}, strict=True)  # noqa: SIM118
    expected = ss.recalibrate(family.at([0.2, 0.3, 0.5]), loader)
    assert all(torch.equal(value, expected.state_dict()[name]) for name, value in network.state_dict().items())


def test_a_network_that_cannot_be_traced_is_named(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x[:, :, 0, 0] if float(x.sum()) > 0 else x[:, :, 1, 1]

    with pytest.raises(ExportError, match=r"torch\.export cannot trace the network"):
        ss.export(Odd(), tmp_path / "own.pt2", **OWN)
    assert list(tmp_path.iterdir()) == []


def test_onnxruntime_sends_nothing_and_leaves_no_file(tmp_path):
    script = "from torch import nn, rand; import os, subspaces as ss; " + (
        "ss.export(nn.Linear(3, 2), 'net.onnx', example=rand(4, 3), progress=False); "
        "print(os.environ.get('ORT_DISABLE_TELEMETRY'))"
    )
    (tmp_path / "tmp").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    environment |= {"TMPDIR": str(tmp_path / "tmp")}
    command = [sys.executable, "-W", "ignore", "-c", script]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, check=False)
    assert ended.stdout.strip() == "None", ended.stderr
    assert not [each for each in (tmp_path / "tmp").iterdir() if not each.name.startswith("torchinductor")]
