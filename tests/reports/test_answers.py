"""How runs answer, how answers compare over their seeds, and ensembles of independent runs."""

import dataclasses
from pathlib import Path

import made_runs
import pytest

from subspaces.core.shapes import Point
from subspaces.evaluation.answers import ANSWERS, Family
from subspaces.evaluation.cache import Measured, Shelf
from subspaces.evaluation.record import Record
from subspaces.reports.answers import Answer, answers, beside, compare, of_these, own, standard_for
from subspaces.reports.page import content, write_page, write_report
from subspaces.reports.page.words import duration
from subspaces.reports.reading import gather

MEMBERS = ("snapshot", "fge", "swag")
NEVER = ("midpoint", "random point", "α")


def method(out: Path, name: str, seeds=(0, 1), **fields) -> list[Path]:
    fields |= {"vertices": 3, "epochs": 30} if name in (*MEMBERS, "swa-cyclic") else {}
    return [made_runs.run(out, name, planes=False, seed=seed, **fields) for seed in seeds]


def texts(value) -> str:
    """Return all text of nested data."""
    if isinstance(value, dict):
        return " ".join(map(texts, value.values()))
    return " ".join(map(texts, value)) if isinstance(value, list | tuple) else str(value)


# A method is shown by its own answers


def test_a_soup_of_other_vertices_in_each_run_is_not_called_by_those_of_the_first(tmp_path: Path):
    (group,) = gather(method(tmp_path, "simplex"))
    for run, kept in zip(group.runs, ("1 of 3 vertices: 2", "2 of 3 vertices: 1 and 3"), strict=True):
        first = dataclasses.replace(run.record.answers[0], name="soup", words=f"greedy soup of {kept}")
        run.record.answers = [first, *run.record.answers]
    assert own(group, "test")[0].name == "greedy soup"
    group.runs[1].record.answers[0] = group.runs[0].record.answers[0]
    assert own(group, "test")[0].name == "greedy soup of 1 of 3 vertices: 2"


@pytest.mark.parametrize("name", MEMBERS)
def test_a_method_of_members_is_shown_by_their_ensemble_alone(name, tmp_path: Path):
    groups = gather([*method(tmp_path, name), *method(tmp_path, "standard", epochs=30)])
    page = content.page(groups)
    (part,) = page["summary"]
    assert [figure["name"] for figure in part["figures"]] == ["ensemble accuracy", "ensemble ECE"]
    assert [title for title, _ in part["paragraphs"]] == ["Ensemble", "Cost"]
    facts = [fact["way"] for fact in page["facts"] if fact["group"] != "standard"]
    assert facts == ["members, on average", "ensemble of 3 members"]
    parts = [page["summary"], page["notes"], page["facts"], page["groups"]]
    assert not [word for word in NEVER if word in texts(parts)]
    group = next(one for one in page["groups"] if one["label"].startswith(name))
    assert [role["name"] for role in group["roles"]] == ["member", "ensemble of 3 members"]
    assert [curve["kind"] for curve in group["risk"]] == ["ensemble"]
    assert group["spread"] is None  # one network was trained
    for run in (run for run in page["runs"] if run["vertices"] == 3):
        assert [point["name"] for point in run["points"]] == ["member 1", "member 2", "member 3"]
        assert (run["kind"], run["middle"], run["choices"]) == ("list", "", [])
        assert run["own"]["name"] == "ensemble of 3 members"
        assert run["own"]["metrics"] == run["ensembles"][0]["metrics"]


def test_averaged_checkpoints_have_no_random_points(tmp_path: Path):
    page = content.page(gather(method(tmp_path, "swa-cyclic")))
    assert [fact["way"] for fact in page["facts"]] == [
        "checkpoints, on average",
        "average of 3",
        "ensemble of 3 checkpoints",
    ]
    assert page["summary"][0]["figures"][0]["name"] == "average accuracy"
    for run in page["runs"]:
        assert {point["role"] for point in run["points"]} == {"vertex", "midpoint", "edge", "grid"}
        assert run["middle"] == "average of 3"


def test_dropout_is_an_answer_where_it_was_measured(tmp_path: Path):
    folders = [made_runs.run(tmp_path, "standard", dropout=0.1, seed=seed) for seed in (0, 1)]
    assert [one.kind for one in own(gather(folders)[0], "test")] == ["network"]
    for folder in folders:
        record = Record.read(folder)
        dropout = ANSWERS["dropout"].of(Family(Point()), "probabilities")
        (row,) = record.rows
        changed = {"kind": "ensemble", "role": "dropout", "average": "probabilities", "networks": 20}
        record.rows.append(dataclasses.replace(row, **changed, metrics={**row.metrics, "accuracy": 0.9}))
        record.answers.append(dropout)
        record.write(folder)
    _, dropped = own(gather(folders)[0], "test")
    assert (dropped.kind, dropped.name, dropped.networks) == ("dropout", "MC-dropout, 20 passes", 20)
    assert {seeds: scores["accuracy"] for seeds, scores in dropped.by_seeds.items()} == {(0,): 0.9, (1,): 0.9}


# Seeds


def answer(*seeds: tuple[int, ...] | int, start: float = 0.5) -> Answer:
    keys = [seed if isinstance(seed, tuple) else (seed,) for seed in seeds]
    scores = {key: {"accuracy": start + 0.01 * sum(key)} for key in keys}
    return Answer("midpoint", "midpoint", None, scores, 1)


@pytest.mark.parametrize(
    ("first", "second", "seeds", "difference", "complete"),
    [
        (answer(0, 1, 2), answer(0, 1, 2, start=0.4), [0, 1, 2], 0.1, True),
        (answer(2), answer(0, 1, 2, start=0.4), [2], 0.1, False),
        (answer(0, 1, 2), answer(1, 5, start=0.4), [1], 0.1, False),
        (answer((0, 1), (2, 3)), answer(0, 1, 2, 3, start=0.4), [0, 1, 2, 3], 0.115, True),  # ½ of 0.01 and of 0.05
        (answer(0, 1, 2), answer((0, 1), start=0.4), [0, 1], 0.095, False),
    ],
)
def test_answers_are_compared_over_the_seeds_that_both_have(first, second, seeds, difference, complete):
    found = compare(first, second, "accuracy")
    assert found is not None
    assert (found.seeds, found.complete) == (seeds, complete)
    assert found.difference.mean == pytest.approx(difference)
    assert found.first.mean - found.second.mean == pytest.approx(difference)


def test_answers_without_a_common_seed_are_not_compared(tmp_path: Path):
    assert compare(answer(0), answer(1), "accuracy") is None
    groups = gather([*method(tmp_path, "line", (0,)), *method(tmp_path, "standard", (1,))])
    (part,) = content.page(groups)["summary"]
    assert part["figures"][0]["against"].endswith("with other seeds: not compared")
    said = dict(part["paragraphs"])
    assert "with other seeds (seed 1): not compared." in said["Midpoint"]
    assert "not compared with standard training (no seed in common)" in said["Ensemble"]


def test_a_method_with_fewer_seeds_gets_no_bold_and_is_compared_with_the_same_seeds(tmp_path: Path):
    several = [folder for name in ("standard", "curve") for folder in method(tmp_path, name, (0, 1, 2))]
    groups = gather([*method(tmp_path, "line", (1,)), *several])
    page = content.page(groups)
    compared = {(fact["group"], fact["compared"]) for fact in page["facts"]}
    assert compared == {("standard", True), ("line", False), ("curve", True)}
    assert page["compared"] == "seeds 0, 1 and 2"
    assert {fact["heading"] for fact in page["facts"] if fact["group"] == "line"} == {"line – seed 1, not compared"}
    assert any("not comparable in the table: line (seed 1)." in note for note in page["notes"])
    line = page["summary"][0]
    standard = next(one for one in groups if one.label == "standard")
    theirs = 100 * own(standard, "test")[0].by_seeds[(1,)]["accuracy"]
    assert f"standard training {theirs:.1f}\u00a0%" in line["figures"][0]["against"]
    assert line["figures"][0]["against"].startswith("with seed 1, which both have: ")
    assert "With seed 1, which both have, it is right on" in dict(line["paragraphs"])["Midpoint"]


def test_standard_training_is_not_compared_with_itself(tmp_path: Path):
    groups = gather([*method(tmp_path, "standard", (0,)), *method(tmp_path, "sam", (0,))])
    standard, sam = groups
    assert standard_for(standard, groups) is None
    assert standard_for(sam, groups) is standard
    parts = {part["label"]: part for part in content.page(groups)["summary"]}
    assert parts["Standard"]["figures"][0]["against"] == "nothing among these runs to compare it with"
    assert parts["Sam"]["figures"][0]["against"].startswith("standard training ")


# Ensembles of independent runs


def with_families(folders: list[Path]) -> list[str]:
    """Give each run a family of its own, and return them."""
    for folder in folders:
        record = Record.read(folder)
        record.environment["family"] = f"family of {folder.name}"
        record.write(folder)
    return [f"family of {folder.name}" for folder in folders]


def together(folders: list[Path], accuracy: float, images: int = 297, batches: int | None = None) -> Measured:
    scores = dict.fromkeys(("nll", "brier", "ece", "adaptive_ece", "aurc"), 0.1)
    names = [folder.name for folder in folders]
    key = {"runs": names, "families": [f"family of {name}" for name in names], "batches": batches}
    return Measured(key, {}, {"test": images}, {"test": {"accuracy": accuracy, **scores}})


@pytest.fixture
def standard(tmp_path: Path) -> list[Path]:
    folders = method(tmp_path, "standard", (0, 1, 2, 3))
    with_families(folders)
    return folders


def test_ensembles_of_independent_networks_are_a_row(standard, tmp_path: Path):
    lines = method(tmp_path, "line", (0, 1, 2, 3))
    pairs = [together(standard[:2], 0.9), together(standard[2:], 0.92), together(standard[1:3], 0.5)]
    page = content.page(gather([*standard, *lines]), pairs)
    (fact,) = (one for one in page["facts"] if "ensemble of 2 runs" in one["way"])
    assert (fact["group"], fact["way"]) == ("standard", "ensemble of 2 runs")
    assert (fact["networks"], fact["runs"], fact["seeds"], fact["compared"]) == (2, 2, [0, 1, 2, 3], True)
    assert fact["mean"][0] == pytest.approx(0.91)  # no run is in two of them
    assert fact["time"] == "0.58\u00a0s"  # twice that of one
    said = dict(page["summary"][0]["paragraphs"])["Independent networks"]
    assert said.startswith("The ensemble of 2 runs, after two training runs, is right on 91.0\u00a0±")
    assert "Against it, the ensemble of 0.1 and 0.9 is " in said
    assert not any("was not measured" in note for note in page["notes"])


def test_an_ensemble_that_leaves_out_a_seed_says_so_and_gets_no_bold(standard):
    page = content.page(gather(standard[:3]), [together(standard[:2], 0.99)])
    (fact,) = (one for one in page["facts"] if "ensemble of 2 runs" in one["way"])
    assert fact["way"] == "ensemble of 2 runs (seeds 0 and 1)"
    assert fact["compared"] is False


def test_they_are_found_beside_the_runs_and_beside_the_page(standard, tmp_path: Path):
    groups = gather(standard)
    assert beside(groups) == []
    Shelf(standard[0].parent / "ensembles.json").add(together(standard[:2], 0.9))
    (tmp_path / "page").mkdir()
    Shelf(tmp_path / "page" / "ensembles.json").add(together(standard[2:], 0.8))
    found = beside(groups, tmp_path / "page")
    assert [one.metrics["test"]["accuracy"] for one in found] == [0.9, 0.8]
    text = write_report(standard, tmp_path / "page" / "report.html").read_text()
    assert "ensemble of 2 runs" in text
    assert "ensemble of 2 runs" not in write_page(groups, tmp_path / "none.html", []).read_text()


@pytest.mark.parametrize("change", ["trained anew", "other images", "other statistics", "other recipe"])
def test_what_is_not_of_these_runs_is_left_out(change, standard, tmp_path: Path):
    other = method(tmp_path, "sam", (0,))
    with_families(other)
    one = together([standard[0], other[0]] if change == "other recipe" else standard[:2], 0.9)
    if change == "trained anew":
        one = dataclasses.replace(one, key={**one.key, "families": [one.key["families"][0], "another"]})
    if change == "other images":
        one = together(standard[:2], 0.9, images=60)
    if change == "other statistics":
        one = together(standard[:2], 0.9, batches=3)
    groups = gather([*standard, *other])
    assert of_these([one], groups, "test", 297) == []
    assert of_these([together(standard[:2], 0.9)], groups, "test", 297) != []


def test_where_they_are_missing_a_note_says_how_to_measure_them(standard):
    (note,) = (note for note in content.page(gather(standard))["notes"] if "was not measured" in note)
    assert f'evaluate_together([["runs/{standard[0].name}", "runs/{standard[1].name}"]], to="runs")' in note
    one = content.page(gather(standard[:1]))
    assert not any("was not measured" in note for note in one["notes"])


def test_those_of_networks_elsewhere_count_for_the_seeds_on_the_page(standard):
    """An ensemble with one member that is not shown is paired by the seed of the other."""
    (group,) = gather(standard[:1])
    *_, both = answers(group, "test", [together(standard[:2], 0.9)])
    assert both.by_seeds.keys() == {(0,)}
    assert both.networks == 2


# Training time


def test_training_time_is_that_of_the_steps(tmp_path: Path):
    (group,) = gather(method(tmp_path, "line", (0,)))
    assert group.runs[0].training_seconds == pytest.approx(12 * 1200 / 5e4)


def test_a_training_time_that_is_not_known_is_said_to_be(tmp_path: Path):
    folders = method(tmp_path, "line", (0,))
    record = Record.read(folders[0])
    record.statistics = {"images": 0, "batch": 128}
    record.write(folders[0])
    page = content.page(gather(folders))
    assert {fact["time"] for fact in page["facts"]} == {"–"}
    assert any("training time is not known" in note for note in page["notes"])
    assert "Training took" not in dict(page["summary"][0]["paragraphs"])["Cost"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.288, "0.29 s"), (42.4, "42 s"), (150, "2.5 min"), (5400, "90 min"), (9000, "2.5 h")]
)
def test_times_in_words(seconds, text):
    assert duration(seconds) == text.replace(" ", "\u00a0")
