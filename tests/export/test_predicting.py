"""Images of every kind as what a model takes, and what cannot be read named and left out."""

import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import CliRunner
from PIL import Image
from torch.testing import assert_close

import subspaces as ss
from subspaces.cli import main as app
from subspaces.export import ModelError, predicting
from subspaces.export.predicting import Predictions
from subspaces.images.decoding import Form, UnreadableError, array_images, read_image, square

Files = Callable[[str], Path]
GREY, COLOUR = Form(1, 8, 8), Form(3, 8, 8)
RAMP = (np.arange(64, dtype=np.uint8) * 4).reshape(8, 8)


def saved(image: Any, path: Path) -> Path:
    (Image.fromarray(image) if isinstance(image, np.ndarray) else image).save(path)
    return path


COLOURS = np.stack([RAMP, RAMP.T, 255 - RAMP], -1)
FILES: dict[str, tuple[Any, Form, Any]] = {  # of other modes see the tests of one's own images
    "grey in colour": (RAMP, COLOUR, np.stack([RAMP] * 3, -1)),
    "colour in grey": (COLOURS, GREY, COLOURS @ np.array([0.299, 0.587, 0.114])),
    "wide": (np.pad(RAMP, ((0, 0), (8, 8))), GREY, RAMP),
}


@pytest.mark.parametrize("name", FILES)
def test_image_files_of_every_kind(name: str, tmp_path: Path) -> None:
    image, form, expected = FILES[name]
    found = read_image(saved(image, tmp_path / "a.png"), form)
    wanted = torch.from_numpy(np.ascontiguousarray(expected)).float().reshape(8, 8, -1).permute(2, 0, 1) / 255
    assert_close(found, wanted.expand(form.channels, 8, 8), atol=1e-5, rtol=0)


@pytest.mark.parametrize(("name", "size"), [("a.png", (50, 37)), ("a.jpg", (8, 90)), ("a.png", (4, 4))])
def test_a_file_is_what_training_on_ones_own_images_makes_of_it(
    size: tuple[int, int], name: str, tmp_path: Path
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (*size[::-1], 3), np.uint8)
    path = saved(noise, tmp_path / name)
    expected = torch.from_numpy(square(path, 8).copy()).permute(2, 0, 1).float() / 255
    assert_close(read_image(path, COLOUR), expected, atol=0, rtol=0)


def written(save: Any, *content: Any, **settings: Any) -> bytes:
    buffer = io.BytesIO()
    save(buffer, *content, **settings)
    return buffer.getvalue()


NOISE = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64), np.uint8))
UNREADABLE: dict[str, tuple[bytes, str]] = {
    "cut.png": (written(NOISE.save, "PNG")[:2000], "not a whole image"),
    "empty.jpg": (b"", "of no known format"),
    "drawing.png": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n", "of no known format"),  # may run a program
    "huge.ppm": (b"P6 100000 100000 255\n1", "scale it down"),
    "words.npy": (written(np.save, np.array(["a"])), "expected uint8, or floats"),
    "long.npy": (written(np.save, np.zeros((2, 8, 8), np.int64)), "an array of int64"),
    "flat.npy": (written(np.save, np.zeros((1, 9, 8), np.uint8)), "an array of uint8 (1, 9, 8): expected"),
    "objects.npy": (written(np.save, np.array([{}], dtype=object)), "not a whole array of numbers"),
}


def test_a_strip_that_would_be_scaled_to_a_huge_image_is_refused(tmp_path: Path) -> None:
    path = saved(np.zeros((1, 5000), np.uint8), tmp_path / "a.png")
    with pytest.raises(UnreadableError, match="scale it down"):
        read_image(path, Form(1, 224, 224, 256))


def rows(path: Path, form: Form) -> list[torch.Tensor]:
    return [read() for _, read in array_images(path, form)]


@pytest.mark.parametrize("form", [GREY, COLOUR], ids=["grey", "colour"])
def test_arrays_in_every_order_are_the_same_images(form: Form, tmp_path: Path) -> None:
    bytes_ = np.random.default_rng(0).integers(0, 256, (5, 8, 8, form.channels), np.uint8)
    first = bytes_.transpose(0, 3, 1, 2)
    versions = {"last": bytes_, "first": first, "float": bytes_.astype(np.float32) / 255, "double": first / 255}
    if form.channels == 1:
        versions["flat"] = bytes_[..., 0]
    for name, array in versions.items():
        np.save(tmp_path / f"{name}.npy", array)
        assert_close(torch.stack(rows(tmp_path / f"{name}.npy", form)), torch.from_numpy(first.copy()).float() / 255)


# The call


def digits(folder: Path, count: int = 3) -> Path:
    """Write test images of digits to a folder."""
    from subspaces.experiments import data

    folder.mkdir()
    images: Any = data.load("digits").test
    for index in range(count):
        saved(images.images[40 + index, 0].numpy(), folder / f"{index}.png")
    return folder


def test_files_folders_and_arrays_give_what_the_network_says(exported: Files, truth: Any, tmp_path: Path) -> None:
    folder, array, order = digits(tmp_path / "images"), tmp_path / "array.npy", [0, 1, 2, 0, *range(7)]
    np.save(array, (truth("line").images * 255).round().byte().numpy())
    best = truth("line").probabilities(0.5)[order].max(-1)
    found = ss.predict(exported("midpoint.pt2"), [folder, folder / "0.png", array], top=3, trust=True, progress=False)
    assert found.skipped == ()
    assert [each.probability for each in found.predictions] == pytest.approx(best.values.tolist())
    assert [each.label for each in found.predictions] == [str(place) for place in best.indices.tolist()]
    assert [len(each.top) for each in found.predictions] == [3] * 11
    names = [str(folder / f"{index}.png") for index in (0, 1, 2, 0)]
    assert [each.file for each in found.predictions] == names + [f"{array}[{i}]" for i in range(7)]


def test_an_ensemble_says_how_far_it_disagrees(exported: Files, truth: Any, tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", truth("line").images.numpy())
    expected = truth("line").together(0.1, 0.9)
    found = ss.predict(exported("pair.onnx"), tmp_path / "array.npy", progress=False).predictions
    assert [each.disagreement for each in found] == pytest.approx(expected.disagreement.tolist(), abs=1e-6)
    assert [each.probability for each in found] == pytest.approx(expected.output.max(-1).values.tolist(), abs=1e-6)


def test_runs_and_whole_families_have_to_be_exported_at_a_point(exported: Files, trained: Files, image: Path) -> None:
    for model, said in ((exported("family.onnx"), "of a family one point"), (trained("line"), "export it first")):
        with pytest.raises(ModelError, match=said):
            ss.predict(model, image, progress=False)


def test_what_cannot_be_read_is_named_and_left_out(exported: Files, tmp_path: Path) -> None:
    folder = digits(tmp_path / "images")
    for name, (content, _) in UNREADABLE.items():
        (folder / name).write_bytes(content)
    (folder / "below").mkdir()
    (folder / "below" / "notes.txt").write_text("hello")
    (folder / ".hidden").mkdir()
    for name in (".cache.npy", ".hidden/a.npy"):  # as this package and others keep them beside images
        np.save(folder / name, np.zeros((2, 8, 8), np.uint8))
    found: Predictions = ss.predict(exported("pair.onnx"), [folder, tmp_path / "nowhere.png"], progress=False)
    assert [Path(each.file).name for each in found.predictions] == ["0.png", "1.png", "2.png"]
    said = {Path(each.file).name: each.reason for each in found.skipped}
    for name, (_, reason) in UNREADABLE.items():
        assert reason in said.pop(name), name
    assert said == {"images": "1 of its files do not end as images do", "nowhere.png": "there is no such file"}


def test_batches_give_what_one_does(exported: Files, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, counted = digits(tmp_path / "images", 7), list[tuple[int, int]]()
    array = np.zeros((3, 8, 8), np.float32)
    array[1] = np.nan
    np.save(folder / "8.npy", array)
    model = exported("pair.onnx")
    whole = ss.predict(model, folder, progress=False)
    assert [each.file[-6:] for each in whole.predictions[7:]] == ["npy[0]", "npy[2]"]
    assert [(each.file[-6:], each.reason) for each in whole.skipped] == [
        ("npy[1]", "its floats are not all from 0 to 1: divide bytes by 255")
    ]
    monkeypatch.setattr(predicting, "BATCH", 3)
    found = ss.predict(model, folder, progress=lambda what, done, total: counted.append((done, total)))
    assert [each.label for each in found.predictions] == [each.label for each in whole.predictions]
    assert counted == [(done, 8) for done in range(9)]


# The command


def call(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [*map(str, arguments)], prog_name="subspaces", env={"COLUMNS": "200"})


def test_the_command_prints_a_table_csv_and_json(exported: Files, tmp_path: Path) -> None:
    folder, model, out = digits(tmp_path / "images", 2), exported("pair.onnx"), tmp_path / "said.json"
    (folder / "bad.png").write_text("hello")
    expected = ss.predict(model, folder, top=2, progress=False)
    ended = call("predict", model, folder, "--top", 2, "--quiet")
    assert ended.exit_code == 0
    assert ended.stderr.splitlines() == [f"skipped {folder / 'bad.png'}: {expected.skipped[0].reason}"]
    for each in expected.predictions:
        (line,) = (line for line in ended.stdout.splitlines() if each.file in line)
        cells = [cell for label, share in each.top for cell in (label, f"{share:.6f}")]
        assert line.split() == [each.file, *cells, f"{each.disagreement:.6f}"]
    head, *lines = call("predict", model, folder, "--top", 2, "--format", "csv", "--quiet").stdout.splitlines()
    assert head == "file,label,probability,label 2,probability 2,disagreement"
    assert [line.split(",")[0] for line in lines] == [each.file for each in expected.predictions]
    assert call("predict", model, folder, "--format", "json", "--out", out, "--quiet").stdout == ""
    found = json.loads(out.read_text())
    assert [each["label"] for each in found["predictions"]] == [each.label for each in expected.predictions]
    assert found["skipped"] == [{"file": str(folder / "bad.png"), "reason": expected.skipped[0].reason}]


def test_exit_codes(exported: Files, trained: Files, tmp_path: Path) -> None:
    model, path = exported("pair.onnx"), tmp_path / "one.safetensors"
    (tmp_path / "empty").mkdir()
    ended = call("predict", model, tmp_path / "empty", "--format", "json", "--quiet")
    assert (ended.exit_code, json.loads(ended.stdout)["skipped"][0]["reason"]) == (1, "a folder without images")
    ended = call("export", trained("line"), "--point", "0.1", "0.9", "--out", path, "--quiet")
    assert (ended.exit_code, ended.stdout.splitlines()) == (0, [f"wrote {path}", f"wrote {path}.md"])
    assert "ensemble of 0.1 and 0.9" in path.with_name("one.safetensors.md").read_text()
    for command, code, said in (
        (["predict", model, "a.png", "--top", "0"], 2, "--top=0: expected at least 1"),
        (["predict", model, "a.png", "--format", "xml"], 2, "--format='xml': expected one of 'table', 'csv', 'json'"),
        (["predict", model, "a.png", "--out", "nowhere/a.csv"], 2, "there is no folder nowhere"),
        (["export", trained("line"), "--out", "a.zip"], 2, "--out='a.zip'"),
        (["export", tmp_path, "--out", path], 1, "is not a run folder"),
    ):
        ended = call(*command)
        assert ended.exit_code == code
        assert said in ended.stderr


@pytest.mark.skipif(os.name != "posix", reason="names that are no text")
def test_a_name_that_is_no_text_is_shown(exported: Files, tmp_path: Path) -> None:
    folder = digits(tmp_path / "images", 1)
    odd = os.fsencode(folder) + b"/\xff.png"
    os.rename(folder / "0.png", odd)
    ended = call("predict", exported("pair.onnx"), folder, "--quiet")
    assert ended.exit_code == 0
    assert r"\xff.png" in ended.stdout
