"""Files of runs: what is damaged is an error that names the file; what is whole may have any name."""

import dataclasses
import os
import random
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from training_cases import CPU, DIGITS, Countdown, Interrupted, assert_same_end, interrupt, train_one

import subspaces as ss
from subspaces.experiments.training import Recipe, Run, RunError, run_files

RECIPE = dataclasses.replace(DIGITS, method="line", epochs=2)
EAGER = dataclasses.replace(CPU, checkpoint_seconds=0.0)
KEY = "0123456789"


def answer(use: Callable[[], Any], file: Path) -> Any:
    """Return what a use of a damaged file gives; None where it is refused, which must name the file and a remedy."""
    refused = ""
    try:
        return use()
    except RunError as error:
        refused = str(error)
    assert str(file) in refused
    assert "remove" in refused
    return None


# JSON


def test_no_byte_can_be_changed_unnoticed(tmp_path: Path):
    path = tmp_path / "result.json"
    content = {"epoch": 3, "test_accuracy": 0.91, "stopping": [{"chosen_on": "test"}], "l2": None}
    run_files.write_json(path, content, KEY)
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in (0, 5):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ (1 << bit)]) + whole[place + 1 :])
            assert answer(lambda: run_files.read_json(path, KEY, "remove it"), path) in (None, content), place


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-3]), ""),
        (lambda path: path.write_bytes(b""), ""),
        (lambda path: path.write_text("[]"), ""),
        (lambda path: path.write_text("[" * 10**5), "recursion"),
        (lambda path: path.write_text("{}"), "changed by hand, or by a fault: its content does not match its checksum"),
        (lambda path: path.write_text(path.read_text().replace("{", '{"note": "the best",', 1)), "changed by hand"),
        (lambda path: path.write_bytes(b"\xff\xfe"), ""),
        (lambda path: path.unlink(), "it is not there"),
        (lambda path: run_files.write_json(path, {}, "9876543210"), "of the run 9876543210, not of 0123456789"),
    ],
)
def test_what_was_changed_is_named_with_what_to_do(change: Callable[[Path], Any], message: str, tmp_path: Path):
    path = tmp_path / "result.json"
    run_files.write_json(path, {"a": 1}, KEY)
    change(path)
    with pytest.raises(RunError, match=rf"{path} is damaged \(.*{message}.*\): remove it"):
        run_files.read_json(path, KEY, "remove it")


# Run folders


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return train_one(RECIPE, tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("begun")
    with pytest.raises(Interrupted):
        train_one(RECIPE, out, execution=EAGER, tick=Countdown(8, interrupt))
    return Run.under(out, RECIPE)


def copied(run: Run, to: Path, name: str | None = None) -> Run:
    folder = to / (name or run.folder.name)
    shutil.copytree(run.folder, folder)
    return Run(folder, run.recipe)


def train(out: Path, recipe: Recipe = RECIPE) -> Run:
    (run,) = ss.train(recipe, out=out, device="cpu", show="quiet")
    return run


FINISHED = ("config.json", "environment.json", "log.jsonl", "family.safetensors", "result.json")
BEGUN = ("config.json", "environment.json", "log.jsonl", "state.safetensors")


def flipped(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ (1 << place % 8)]) + content[place + 1 :]


@pytest.mark.parametrize("name", FINISHED)
def test_a_changed_byte_of_a_finished_run_is_noticed(name: str, finished: Run, tmp_path: Path):
    run = copied(finished, tmp_path)
    file, chance = run.folder / name, random.Random(name)
    whole = file.read_bytes()
    for place in [0, len(whole) - 2, *(chance.randrange(len(whole)) for _ in range(12))]:
        file.unlink()
        file.write_bytes(flipped(whole, place))
        if answer(lambda: train(tmp_path), file) is not None:
            assert_same_end(run, finished)


@pytest.mark.parametrize("name", BEGUN)
def test_a_changed_byte_of_an_unfinished_run_is_noticed(name: str, begun: Run, finished: Run, tmp_path: Path):
    whole, chance = (begun.folder / name).read_bytes(), random.Random(name)
    for number in range(4):
        run = copied(begun, tmp_path / str(number))
        file = run.folder / name
        file.unlink()
        file.write_bytes(flipped(whole, chance.randrange(len(whole))))
        before = {path.name: path.read_bytes() for path in run.folder.iterdir() if path.suffix == ".safetensors"}
        if answer(lambda out=tmp_path / str(number): train(out), file) is not None:
            assert_same_end(run, finished)
        else:
            assert {path.name: path.read_bytes() for path in run.folder.glob("*.safetensors")} == before


@pytest.mark.parametrize("name", ["result.json", "log.jsonl", "environment.json", "family.safetensors"])
def test_a_file_of_another_run_is_noticed(name: str, finished: Run, tmp_path: Path):
    other = train_one(dataclasses.replace(RECIPE, seed=1), tmp_path / "other")
    run = copied(finished, tmp_path)
    (run.folder / name).unlink()
    shutil.copy(other.folder / name, run.folder)
    with pytest.raises(RunError, match=rf"{run.folder / name} is damaged"):
        train(tmp_path)


def test_a_folder_may_be_renamed_and_moved(finished: Run, tmp_path: Path):
    run = Run.open(copied(finished, tmp_path / "elsewhere", "mine-seed7-0123456789").folder)
    assert (run.recipe, run.result, run.log()) == (finished.recipe, finished.result, finished.log())
    ss.evaluate(run.folder, grid=(0.0,), device="cpu", progress=False)
    assert ss.check(run.folder) == []
    (run.folder / "evaluation.json").rename(tmp_path / "other.json")
    assert ss.Evaluation.load(tmp_path / "other.json").rows


def lines(run: Run) -> list[bytes]:
    return (run.folder / "log.jsonl").read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda log: log[:1],
        lambda log: log[1:],
        lambda log: log[::-1],
        lambda log: [log[0], log[1].replace(b'"epoch": 2', b'"epoch": 3')],
    ],
)
def test_a_log_without_a_line_or_in_another_order_is_noticed(
    change: Callable[[list[bytes]], list[bytes]], finished: Run, tmp_path: Path
):
    run = copied(finished, tmp_path)
    assert len(lines(run)) == 2
    (run.folder / "log.jsonl").write_bytes(b"".join(change(lines(run))))
    for use in (run.log, lambda: train(tmp_path)):
        with pytest.raises(RunError, match=r"log\.jsonl is damaged"):
            use()


def test_the_log_of_a_run_in_training_is_read_to_its_last_whole_line(begun: Run, tmp_path: Path):
    run = copied(begun, tmp_path)
    with open(run.folder / "log.jsonl", "a") as file:
        file.write('{"epoch": 2, "lo')
    assert run.log() == begun.log()
    (run.folder / "log.jsonl").write_bytes(b"")
    with pytest.raises(RunError, match=r"log\.jsonl is damaged \(it has 0 lines, and had 1 when .* last saved"):
        run.reset_log(run.load_checkpoint()[1])


# Slips that would go unnoticed else


def test_the_log_is_on_the_disk_before_what_counts_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    run = Run.under(tmp_path, RECIPE)
    run.start(CPU)
    calls: list[Any] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda file: calls.append(os.fstat(file).st_ino) or sync(file))
    monkeypatch.setattr(os, "replace", lambda old, new: calls.append(Path(new).name) or replace(old, new))
    for epoch, name in ((1, "state.safetensors"), (2, "result.json")):
        run.append_log({"epoch": epoch})
        calls.clear()
        if epoch == 1:
            run.save_checkpoint({"a": torch.ones(1)}, {"epoch": 1})
        else:
            run.finish({}, {})
        assert calls.index((run.folder / "log.jsonl").stat().st_ino) < calls.index(name)
    assert not (run.folder / "state.safetensors").exists()


def test_the_subspace_that_was_trained_is_checked_too(tmp_path: Path):
    recipe = dataclasses.replace(RECIPE, method="integral", epochs=1)
    run = train_one(recipe, tmp_path)
    whole = run.trained_file.read_bytes()
    run.trained_file.unlink()
    run.trained_file.write_bytes(flipped(whole, len(whole) - 9))
    with pytest.raises(RunError, match=r"trained\.safetensors is damaged"):
        train(tmp_path, recipe)
    assert str(run.trained_file) in ss.check(tmp_path)[0]


@pytest.mark.parametrize("name", ["config.json", "environment.json", "log.jsonl", "family.safetensors", "result.json"])
@pytest.mark.parametrize("kind", ["pipe", "link"])
def test_what_is_no_file_is_told_and_never_waited_for(name: str, kind: str, finished: Run, tmp_path: Path):
    run = copied(finished, tmp_path)
    (run.folder / name).unlink()
    if kind == "pipe":
        os.mkfifo(run.folder / name)
    else:
        os.symlink(tmp_path / "nowhere", run.folder / name)
    assert ss.check(tmp_path)
    if name in ("environment.json", "log.jsonl"):
        with pytest.raises(RunError, match=rf"{run.folder / name} is damaged \(it is not a file\): .* remove"):
            train(tmp_path)


def test_without_its_configuration_nothing_of_a_run_is_touched(begun: Run, finished: Run, tmp_path: Path):
    run = copied(finished, tmp_path)
    (run.folder / "config.json").unlink()
    before = {path.name: path.read_bytes() for path in run.folder.iterdir() if path.name != ".lock"}
    with pytest.raises(
        RunError, match=r"config\.json is damaged \(it is not there\): put an unchanged copy back, or remove the folder"
    ):
        train(tmp_path)
    assert run.holder() is None
    assert {path.name: path.read_bytes() for path in run.folder.iterdir() if path.name != ".lock"} == before
    other = copied(begun, tmp_path / "begun")  # whose checkpoint says of which run it is
    (other.folder / "config.json").unlink()
    train(tmp_path / "begun")
    assert_same_end(other, finished)


def test_a_run_whose_family_is_gone_is_trained_anew(finished: Run, tmp_path: Path):
    run = copied(finished, tmp_path)
    run.family_file.unlink()
    train(tmp_path)
    assert_same_end(run, finished)
    assert ss.check(tmp_path) == []


def test_a_file_that_comes_and_goes_meanwhile_is_no_damage(tmp_path: Path):
    """As a checkpoint does while another process trains the run."""
    path, ended = tmp_path / "state.safetensors", threading.Event()

    def come_and_go() -> None:
        while not ended.is_set():
            path.touch()
            path.unlink()

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        assert {run_files.there(path, "remove it") for _ in range(5000)} <= {True, False}
    finally:
        ended.set()
        thread.join()
