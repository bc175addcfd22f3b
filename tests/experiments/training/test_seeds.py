"""Every seed decides what it names, and nothing else; observed in whole runs, whose network notes what it sees."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from seed_cases import BASE, CHANGED, SEEDS, Call, taken, use_numbered

import subspaces as ss
from subspaces.core.loading import load
from subspaces.experiments.data import Dataset
from subspaces.experiments.evaluating.run_subject import run_subjects
from subspaces.experiments.training import Execution, Recipe, Run
from subspaces.experiments.training.engine import Engine
from subspaces.experiments.training.scheduling import train_group

DECIDES = {  # what is drawn, and the seeds that it depends on
    "initial weights": ("seed",),
    "order of the images": ("seed",),
    "crops and flips": ("seed",),
    "alpha and the pairs of the penalty": ("seed",),
    "dropout masks": ("seed",),
    "label noise": ("data_seed",),
    "held-out images": ("data_seed",),
    "order of the images for statistics": ("seed",),
    "crops and flips for statistics": ("seed",),
    "dropout masks for statistics": ("seed",),
    "label noise in evaluation": ("data_seed",),
    "held-out images in evaluation": ("data_seed",),
    "order of the images for statistics in evaluation": ("seed",),
}
CPU = {"device": "cpu", "workers": 0, "show": "quiet"}


def ranks(calls: Sequence[Call]) -> list[int]:
    """The images in their order, numbered within the split that they come from."""
    numbers = [number for call in calls for number in call.numbers]
    places = {number: place for place, number in enumerate(sorted(set(numbers)))}
    return [places[number] for number in numbers]


def views(calls: Sequence[Call]) -> list[bytes]:
    """How the images were cropped and flipped, in the order of the split."""
    found: dict[int, bytes] = {}
    for call in calls:
        found |= call.views
    return [found[number] for number in sorted(found)]


def masks(calls: Sequence[Call]) -> list[list[list[float]]]:
    return [call.mask.tolist() for call in calls]


def epochs(calls: Sequence[Call]) -> list[list[Call]]:
    """The calls of each epoch: three batches of 20, 20 and 10 images."""
    assert len(calls) % 3 == 0
    return [list(calls[start : start + 3]) for start in range(0, len(calls), 3)]


class Observed:
    """What one run has drawn, by name."""

    def __init__(self, recipe: Recipe, out: Path, resident: bool, datasets: list[Dataset]) -> None:
        taken()
        (self.run,) = ss.train(recipe, out=out, resident=resident, evaluate_every=0, **CPU)
        calls, (self.dataset,) = taken(), datasets
        datasets.clear()
        self.learning = [call for call in calls if call.learning]
        self.statistics = [call for call in calls if call.training and not call.learning]
        self.execution = Execution(device="cpu", resident=resident, workers=0).resolved()
        self.bench = run_subjects(None, self.execution)(self.run)
        self.drawn = {**self._training(recipe), **self._measuring()}

    def _training(self, recipe: Recipe) -> dict[str, Any]:
        begun = Engine(recipe, self.dataset, self.execution).family
        family = load(self.run.family_file, begun.midpoint())
        return {
            "initial weights": [omega.tolist() for omega in begun.omega.values()],
            "order of the images": [ranks(epoch) for epoch in epochs(self.learning)],
            "crops and flips": [views(epoch) for epoch in epochs(self.learning)],
            "alpha and the pairs of the penalty": family.rng.tolist(),
            "dropout masks": masks(self.learning),
            "label noise": self.dataset.train.labels.tolist(),
            "held-out images": self.dataset.validation.images[:, 0, 0, 0].tolist(),
            "order of the images for statistics": ranks(self.statistics),
            "crops and flips for statistics": views(self.statistics),
            "dropout masks for statistics": masks(self.statistics),
        }

    def _measuring(self) -> dict[str, Any]:
        taken()
        list(self.bench.predictor(["test"], None).outputs([(1.0, 0.0, 0.0)], "test"))
        statistics = [call for call in taken() if call.training]
        return {
            "label noise in evaluation": self.bench.images_of.train.labels.tolist(),
            "held-out images in evaluation": self.bench.images_of.validation.images[:, 0, 0, 0].tolist(),
            "order of the images for statistics in evaluation": ranks(statistics),
        }


@pytest.fixture(scope="module", params=[True, False], ids=["resident", "streaming"])
def observed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Observed]]:
    """What is drawn by the same run, and with each seed changed."""
    datasets: list[Dataset] = []

    def noting(runs: Sequence[Run], levels: Mapping[float, Dataset], *rest: Any) -> Any:
        datasets.extend(levels.values())
        return train_group(runs, levels, *rest)

    with pytest.MonkeyPatch.context() as patch:
        use_numbered(patch)
        patch.setattr("subspaces.experiments.training.scheduling.train_group", noting)
        recipes = {"none": BASE, "again": BASE}
        recipes |= {field: dataclasses.replace(BASE, **{field: CHANGED[field]}) for field in SEEDS}
        yield {
            name: Observed(recipe, tmp_path_factory.mktemp(name), request.param, datasets)
            for name, recipe in recipes.items()
        }


def test_each_seed_decides_what_it_names_and_nothing_else(observed):
    base = observed["none"].drawn
    assert observed["again"].drawn == base
    found = {what: tuple(field for field in SEEDS if observed[field].drawn[what] != base[what]) for what in base}
    assert found == {what: DECIDES[what] for what in base}
    assert len(base) == len(DECIDES)


def test_statistics_see_all_training_images_once_in_an_order_of_their_own(observed):
    for one in observed.values():
        drawn, images = one.drawn, sorted(range(50))
        assert sorted(drawn["order of the images for statistics"]) == images
        for order, crops in zip(drawn["order of the images"], drawn["crops and flips"], strict=True):
            assert sorted(order) == images
            assert order != drawn["order of the images for statistics"]
            assert crops != drawn["crops and flips for statistics"]
        assert drawn["order of the images for statistics in evaluation"] == drawn["order of the images for statistics"]


def test_everything_that_is_drawn_twice_differs(observed):
    drawn = observed["none"].drawn
    for what in ("order of the images", "crops and flips"):
        first, second = drawn[what]
        assert first != second
    assert len({str(one) for one in drawn["dropout masks"]}) == len(drawn["dropout masks"])


def test_training_and_evaluation_have_the_same_data(observed):
    for one in observed.values():
        assert one.drawn["label noise"] == one.drawn["label noise in evaluation"]
        assert one.drawn["held-out images"] == one.drawn["held-out images in evaluation"]
        held_out = {number - 1 for number in one.drawn["held-out images"]}
        assert held_out.isdisjoint({number for call in one.learning for number in call.numbers})
