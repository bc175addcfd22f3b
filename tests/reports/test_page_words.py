"""Every number in the page's sentences is worked out anew from the records."""

import dataclasses
import math
from pathlib import Path

import made_runs
import numpy as np
import pytest
from page_cases import LABELS, METRICS, Recorded, deviation, is_middle

from subspaces.evaluation.record import Choice, Record
from subspaces.reports import reading
from subspaces.reports.measures import measure, places
from subspaces.reports.page import commands, content, run_section

AT = {metric: at for at, metric in enumerate(METRICS)}


@pytest.fixture(scope="module")
def page(recorded):
    return content.page(reading.gather(recorded.folders))


def said(values: np.ndarray, metric: str) -> str:
    """Return mean and standard deviation over seeds in percent."""
    mean, std = (100 * number[AT[metric]] for number in (values.mean(0), deviation(values)))
    return f"{mean:.1f}\u00a0±\u00a0{std:.1f}\u00a0%"


def compared(first: np.ndarray, second: np.ndarray, metric: str, than: str = "") -> str:
    """Return in words how the first does against the second, seed by seed."""
    gain = 100 * (first - second)[:, AT[metric]] * (1 if metric == "accuracy" else -1)
    if round(abs(gain.mean()), 1) == 0:
        return "no different" + (f" from {than}" if than else "")
    agreeing = sum(one * gain.mean() > 0 for one in gain)
    word = ("better" if gain.mean() > 0 else "worse") + (f" than {than}" if than else "")
    average = "" if agreeing == len(gain) else " on average"
    return f"{abs(gain.mean()):.1f} points {word}{average} (in {agreeing} of {len(gain)} seeds)"


def test_the_summary_is_right_in_every_number(recorded: Recorded, page):
    ways = {way: values for way, (values, _) in recorded.ways().items()}
    standard, names = ways["standard", "network"], ("line", "curve", "simplex")
    assert [part["label"] for part in page["summary"]] == ["Line", "Curve", "Simplex (m = 3)"]
    verdicts = ""
    for name, part in zip(names, page["summary"], strict=True):
        middle, words = ways[name, "midpoint"], dict(part["paragraphs"])
        for figure, metric in zip(part["figures"], ("accuracy", "ECE"), strict=True):
            ours, theirs = (100 * values.mean(0)[AT[metric.lower()]] for values in (middle, standard))
            assert (figure["name"], figure["value"]) == (f"midpoint {metric}", f"{ours:.1f}\u00a0%")
            sign = "+" if ours > theirs else "−"
            beside = f"standard training {theirs:.1f}\u00a0%, difference {sign}{abs(ours - theirs):.1f} points"
            assert figure["against"] == beside
        assert list(words) == ["Midpoint", "Ensemble", "Cost"]
        assert words["Midpoint"] == (
            f"It is right on {said(middle, 'accuracy')}, standard training on {said(standard, 'accuracy')}: "
            f"{compared(middle, standard, 'accuracy')}. Its ECE is {said(middle, 'ece')}, against "
            f"{said(standard, 'ece')}: {compared(middle, standard, 'ece')}."
        )
        title = "ensemble of 3 vertices" if name == "simplex" else "ensemble of 0.1 and 0.9"
        both = ways[name, title]
        told = {
            metric: f"{compared(both, middle, metric, 'the midpoint')} and "
            f"{compared(both, standard, metric, 'standard training')}"
            for metric in ("accuracy", "ece")
        }
        text = f"The {title} is right on {said(both, 'accuracy')}, {told['accuracy']}."
        text += f" Its ECE is {said(both, 'ece')}: {told['ece']}."
        if name == "simplex":
            six = ways[name, "ensemble of 6 random points"]
            text += f" The ensemble of 6 random points is right on {said(six, 'accuracy')}, its ECE {said(six, 'ece')}."
        assert words["Ensemble"] == text
        verdicts += words["Midpoint"] + text
        vertices, at_test = {"line": ("two", "two"), "curve": ("three", "two"), "simplex": ("three", "three or six")}[
            name
        ]
        assert words["Cost"] == (
            f"One training run, which holds the weights of {vertices} networks. "
            f"At test, one network for the midpoint and {at_test} for the ensemble. Training took 0.29\u00a0s a run."
        )
    assert all(word in verdicts for word in ("better", "worse", "(in 3 of 3 seeds)"))


def test_without_standard_training_it_is_compared_with_its_ends(recorded: Recorded):
    ways = {way: values for way, (values, _) in recorded.ways().items()}
    for name, other, words in (("curve", "ends, on average", "ends"), ("simplex", "vertices, on average", "vertices")):
        (part,) = content.page(reading.gather(recorded.runs[name]))["summary"]
        middle, ends = ways[name, "midpoint"], ways[name, other]
        assert dict(part["paragraphs"])["Midpoint"] == (
            f"No standard training of the same setting is among these runs. It is right on {said(middle, 'accuracy')}, "
            f"its {words} on average on {said(ends, 'accuracy')}: {compared(middle, ends, 'accuracy')}. "
            f"Its ECE is {said(middle, 'ece')}, against {said(ends, 'ece')}: {compared(middle, ends, 'ece')}."
        )


def test_single_networks_are_summed_up_alone(recorded: Recorded):
    (part,) = content.page(reading.gather(recorded.runs["standard"]))["summary"]
    values, _ = recorded.ways()["standard", "network"]
    words = dict(part["paragraphs"])
    assert words["Network"] == f"It is right on {said(values, 'accuracy')}. Its ECE is {said(values, 'ece')}."
    assert words["Cost"] == "One training run, one network at test. Training took 0.29\u00a0s a run."
    assert part["figures"][0] == {
        "name": "network accuracy",
        "value": f"{100 * values.mean(0)[0]:.1f}\u00a0%",
        "against": "nothing among these runs to compare it with",
    }


def test_title_and_notes(recorded: Recorded, page):
    assert page["title"] == "digits: standard, line, curve and simplex"
    parts = page["subtitle"].split(" · ")
    assert parts[:-1] == [
        "network mlp",
        "12 epochs",
        "40% of the training labels random",
        "12 runs",
        "test split, 120 images",
    ]
    line, simplex = recorded.runs["line"][0].name, recorded.runs["simplex"][2].name
    checked = "With batch-norm statistics of 128 or 640 instead of 1,200 images, the accuracy of 2 points of"
    standard = ", ".join(f'"runs/{folder.name}"' for folder in recorded.runs["standard"][:2])
    assert page["notes"] == [
        "All numbers are on the 120 images of the test split.",
        "± is the standard deviation over 3 training runs with different seeds (seeds 0, 1 and 2); "
        "a difference that is not much larger may be chance.",
        "The ensemble of the independent networks of standard was not measured. In Python: "
        "from subspaces.experiments.evaluating.ensembles import evaluate_together; "
        f'evaluate_together([[{standard}]], to="runs"); then write this page again.',
        "Training time is that of the training steps alone, on average over seeds; start-up and evaluation are not in "
        "it. Hardware: made up.",
        "Every network has its own batch-norm statistics, from 1,200 training images. "
        f"{checked} {line} differs by at most 4.0 points. {checked} {simplex} differs by at most 10.0 points.",
        "A line or curve is shown by the ensemble of 0.1 and 0.9, or the nearest points that were measured: "
        "a pair that was fixed beforehand, not the best one.",
        "Some points were chosen on the test set itself, as in the paper, which makes them look better than they "
        "are. They are listed under Choices, marked “chosen on the test set”; the summary does not use them.",
    ]


def test_what_may_be_chance_with_one_seed(recorded: Recorded):
    folders = [recorded.runs[name][1] for name in LABELS]
    notes = content.page(reading.gather(folders))["notes"]
    assert "Everything was trained once (seed 1)." in notes
    accuracy = np.mean([values[1, 0] for values, _ in recorded.ways().values()])
    margin = 1.96 * math.sqrt(2 * accuracy * (1 - accuracy) / 120)  # of the difference of two proportions
    (note,) = (note for note in notes if "may differ by chance" in note)
    assert note.startswith(f"With one seed and 120 images, accuracies less than about {100 * margin:.1f} points apart")


def test_seeds_that_differ_are_not_counted(recorded: Recorded):
    notes = content.page(reading.gather([*recorded.runs["line"], *recorded.runs["curve"][:2]]))["notes"]
    assert "± is the standard deviation over training runs with different seeds; without it there is one run." in notes


def test_runs_that_have_only_held_out_images_in_common_are_shown_on_them(recorded: Recorded, tmp_path: Path):
    other = made_runs.run(tmp_path, "line", splits={"validation": 60, "test": 120}, validation=60, beta=0.25)
    record = Record.read(other)
    record.rows[:] = [row for row in record.rows if row.split == "validation"]
    record.write(other)
    shown = content.page(reading.gather([recorded.runs["line"][0], other]))
    assert (shown["split"], shown["images"]) == ("validation", 60)
    assert "These images were held out of training; choices may have been made on them." in shown["notes"]
    middle = recorded.rows("line", 0, is_middle, "validation")[0].metrics["accuracy"]
    (fact,) = (one for one in shown["facts"] if (one["group"], one["way"]) == ("line, β = 1", "midpoint"))
    assert fact["mean"][0] == pytest.approx(middle, rel=1e-5)
    assert fact["std"] == [None] * 6
    assert all(run["strip"] is None for run in shown["runs"])  # its images are of the test set


def test_percentages_have_as_many_places_as_images_can_tell_apart():
    assert [places(measure("ece"), images) for images in (60, 4999, 5000, 10_000)] == [1, 1, 2, 2]


def test_what_is_kept_of_many_images(recorded: Recorded):
    folder = recorded.runs["line"][0]
    examples, points = Record.read(folder).examples, list(reading.Reading(folder).points("test").values())
    strip = run_section.strip(examples, points, "test", 5)
    assert strip is not None
    assert [len(strip[key]) for key in ("images", "labels", "indices")] == [5] * 3
    assert strip["predicted"] == [line[:5] for line in examples.predicted]
    assert np.allclose(strip["confidence"], [line[:5] for line in examples.confidence], atol=0.0051)
    many = [dataclasses.replace(group, runs=group.runs * 4) for group in reading.gather(recorded.runs["line"])] * 2
    assert {len(run["strip"]["labels"]) for run in content.page(many)["runs"]} == {8}  # 200 for 24 runs


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.35, "0.35"),
        (0.123456, "0.123"),
        ([0.2, 0.8], "0.2, 0.8"),
        ([0.5, 0.5], "0.5, 0.5"),
        ([1 / 3] * 3, "midpoint"),
        ([0.2, 0.3, 0.5], "0.2, 0.3, 0.5"),
        ([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]], "(1, 0, 0), (0, 0.5, 0.5)"),
    ],
)
def test_what_was_chosen_in_words(value, expected):
    shown = run_section._choice(Choice("point", "nll", "validation", False, value, {"test": {"nll": math.nan}}))
    assert content.short(shown) == {
        "what": "best point",
        "value": expected,
        "by": "nll",
        "chosen_on": "validation",
        "on_test": False,
        "reported": {"test": {"nll": None}},
    }


# Commands


def test_the_commands_of_planes_name_the_runs_they_go_through(recorded: Recorded):
    folders = [recorded.runs[name][0] for name in ("line", "curve")]
    line, curve = (reading.Reading(folder) for folder in folders)
    known = commands.folders([line, curve])
    assert known == {
        f"digits-{name} seed 0": f"runs/{f.name}" for name, f in zip(("line", "curve"), folders, strict=True)
    }
    (plane,) = line.record.planes
    corners = [
        plane.corners[0],
        *(dataclasses.replace(plane.corners[1], label=f"digits-curve seed 0{a}") for a in ("", " at 0.25")),
    ]
    for changes, options in (
        ({}, "--plane --cells 5"),
        (
            {"corners": corners},
            f"--plane-through runs/{folders[1].name} --plane-through runs/{folders[1].name}:0.25 --cells 5",
        ),
        ({"xs": list(range(21))}, "--plane"),
        ({"statistics_images": 50 * 128}, "--plane --cells 5"),
        ({"statistics_images": 3 * 128 - 1}, "--plane --cells 5 --plane-statistics-batches 3"),
        ({"statistics_images": 1200}, "--plane --cells 5"),
    ):
        changed = dataclasses.replace(plane, **{"statistics_images": 50 * 128, **changes})
        line.record.planes[:] = [changed]
        _, evaluate, *rest = commands.reproduce(line, known)
        counts = "--check-statistics 1 --check-statistics 5 --check-statistics 10"
        assert evaluate == f"subspaces evaluate runs/{folders[0].name} --choose-on test {counts} {options}"
        assert rest == []
