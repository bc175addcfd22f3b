"""Every field of a recipe changes the training that uses it, and every setting of an execution arrives."""

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from seed_cases import FIELDS, numbered, taken, use_numbered
from training_cases import contents, rows

import subspaces as ss
from subspaces.experiments.data import ResidentLoader, Split, loading
from subspaces.experiments.training import Execution, Recipe, Run
from subspaces.experiments.training.engine import Engine
from subspaces.experiments.training.recipe import all_fields
from subspaces.experiments.training.trainer import Trainer

BASE = Recipe(
    name="fields",
    dataset="digits",
    network="mlp",
    label_noise=0.3,
    pad=0,
    flip=False,
    epochs=2,
    batch=32,
    learning_rate=0.02,
)
ELSEWHERE = {"image_size", "fingerprint", "start_from"}  # see test_folder_runs and test_resume
IDLE = {"name": "other", "keep_epoch": 1}
QUIET = {"show": "quiet", "device": "cpu"}
Trained = Callable[[Recipe], Run]


def other() -> ss.data.Dataset:
    """The numbered images upside down."""
    made = numbered()
    assert isinstance(made.train, Split)
    return dataclasses.replace(made, train=Split(255 - made.train.images, made.train.labels))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trained]:
    """A function that trains a recipe in a folder of its own, or has done so before."""
    known: dict[Recipe, Run] = {}

    def train(recipe: Recipe) -> Run:
        if recipe not in known:
            (known[recipe],) = ss.train(recipe, out=tmp_path_factory.mktemp("runs"), **QUIET)
        return known[recipe]

    with pytest.MonkeyPatch.context() as patch:
        use_numbered(patch)
        patch.setitem(loading.SOURCES, "mnist", loading.SOURCES["mnist"]._replace(load=lambda *_: other()))
        patch.setattr(loading, "ROOT", ".")  # a folder that is there
        yield train


def weights(run: Run) -> dict[str, bytes]:
    return {name: value for name, value in contents(run.family_file)[1].items() if name != "rng"}


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_changes_the_training_that_uses_it(field, trained: Trained):
    used, value = FIELDS[field]
    recipe = dataclasses.replace(BASE, **used)
    changed = dataclasses.replace(recipe, **{field: value})
    assert weights(trained(recipe))
    assert weights(trained(changed)) != weights(trained(recipe))
    alone = field == "ema_decay"  # an average leaves the training itself alone
    assert (rows(trained(changed)) == rows(trained(recipe))) is alone


def test_every_field_is_in_the_table():
    assert set(all_fields()) == {*IDLE, *ELSEWHERE, *FIELDS}


@pytest.mark.parametrize("field", IDLE)
def test_a_field_that_is_not_used_changes_nothing(field, trained: Trained):
    changed = trained(dataclasses.replace(BASE, **{field: IDLE[field]}))
    assert weights(changed) == weights(trained(BASE))
    assert rows(changed) == rows(trained(BASE))


# Execution


def train_with(out: Path, **settings: Any) -> Run:
    taken()
    recipe = dataclasses.replace(BASE, network="seed_cases:probe", epochs=4)
    (run,) = ss.train(recipe, out=out, **{**QUIET, "workers": 0, **settings})
    return run


@pytest.mark.parametrize(
    ("setting", "value", "seen"),
    [
        ("precision", "bfloat16", lambda engine: str(engine.loader.take(2)[0].dtype).removeprefix("torch.")),
        ("channels_last", True, lambda engine: engine.loader.take(2)[0].stride(1) == 1),
        ("resident", False, lambda engine: isinstance(engine.loader, ResidentLoader)),
        ("workers", 1, lambda engine: engine.loader.loader._loader.num_workers),
    ],
    ids=lambda part: None if callable(part) else str(part),
)
def test_a_setting_arrives_at_the_engine(setting, value, seen):
    streamed = {"resident": False} if setting == "workers" else {}
    execution = Execution(**{"device": "cpu", setting: value, **streamed}).resolved()
    engine = Engine(BASE, numbered(), execution)
    assert seen(engine) == value


@pytest.mark.parametrize(("every", "evaluated"), [(0, []), (1, [1, 2, 3]), (2, [2]), (3, [3])])
def test_evaluations_come_as_often_as_asked_for(every, evaluated, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    use_numbered(monkeypatch)
    run = train_with(tmp_path, evaluate_every=every)
    assert [row["epoch"] for row in run.log() if "test_accuracy" in row] == evaluated


@pytest.mark.parametrize(("seconds", "saved"), [(0.0, 8), (1e6, 0)])
def test_checkpoints_come_as_often_as_asked_for(seconds, saved, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    use_numbered(monkeypatch)
    places: list[tuple[int, int]] = []
    save = Trainer.checkpoint

    def noting(trainer: Trainer) -> None:
        places.append((trainer.epoch, trainer.done))
        save(trainer)

    monkeypatch.setattr(Trainer, "checkpoint", noting)
    train_with(tmp_path, checkpoint_seconds=seconds)
    assert places == [(epoch, done) for epoch in range(4) for done in (1, 2)][:saved]  # after each step
