"""Evaluations of several runs: grouped by what was trained, over seeds, and how their answers compare."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from subspaces.errors import ArgumentError
from subspaces.evaluation.answers import OVER_RUNS
from subspaces.evaluation.frames import to_frame
from subspaces.evaluation.record import Record, Training
from subspaces.evaluation.statistics import Difference, Spread, paired, spread

if TYPE_CHECKING:
    import pandas as pd

ABSENT = ("validation", "dropout", "label_smoothing", "trunk", "branch")  # named only where they are not 0
ALONE, SCALED, RUNS = "alone", "scaled", "runs"


@dataclass(frozen=True)
class Group:
    """Evaluations of runs that differ in their seed only, or one evaluation of anything else.

    `ensembles` are evaluations of several of these runs together, whose `training.seeds` are more than one.
    """

    label: str
    evaluations: list[Record]
    ensembles: list[Record] = field(default_factory=list)

    @property
    def training(self) -> Training | None:
        """How the first run was trained; None of a family that is no run."""
        return self.evaluations[0].training

    @property
    def seeds(self) -> list[int]:
        """The seed of each evaluation."""
        return [seeds_of(each)[0] for each in self.evaluations]

    @property
    def shape(self) -> dict[str, Any]:
        """What alpha is ("kind": single, interval, simplex), how many "vertices", and what "members" are called."""
        return self.evaluations[0].shape

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """The frames of all evaluations below each other, with the columns `method` and `seeds` before."""
        import pandas as pd

        frames = [_with_seeds(self.label, each) for each in (*self.evaluations, *self.ensembles)]
        return pd.concat(frames, ignore_index=True)


def seeds_of(record: Record) -> tuple[int, ...]:
    """Return the seeds of the runs that were evaluated together; (0,) of a family that is no run."""
    return (0,) if record.training is None else tuple(record.training.seeds)


def _with_seeds(label: str, record: Record) -> "pd.DataFrame":
    frame = to_frame(record)
    frame.insert(0, "method", label)
    frame.insert(1, "seeds", [seeds_of(record)] * len(frame))
    return frame


def groups_of(evaluations: Iterable[Record]) -> list[Group]:
    """Group evaluations by what was trained: single networks, lines, curves, simplexes, and then all others."""
    found: dict[str, list[Record]] = {}
    ensembles: dict[str, list[Record]] = {}
    others: list[Record] = []
    for each in evaluations:
        if each.training is None:
            others.append(each)
            continue
        kept = found if len(each.training.seeds) == 1 else ensembles
        members = kept.setdefault(each.training.group, [])
        if (same := next((one for one in members if seeds_of(one) == seeds_of(each)), None)) is not None:
            raise ArgumentError(f"{same.name} and {each.name} are the same run: leave one of them out")
        members.append(each)
    known = [(members[0].training, key, members) for key, members in found.items() if members[0].training is not None]
    known.sort(key=lambda one: one[0].order)
    labels = labels_of([training for training, _, _ in known])
    names = [one.name for one in others]  # with a number where two have the same
    numbers = [f" {names[:at].count(name) + 1}" if names.count(name) > 1 else "" for at, name in enumerate(names)]
    return [
        *(
            Group(label, sorted(members, key=seeds_of), sorted(ensembles.get(key, []), key=lambda e: len(seeds_of(e))))
            for label, (_, key, members) in zip(labels, known, strict=True)
        ),
        *(Group(one.name + number, [one]) for one, number in zip(others, numbers, strict=True)),
    ]


def labels_of(trainings: Sequence[Training]) -> list[str]:
    """Return the method of each in words, with the settings in which it is not as usual among them.

    A setting has one usual value at most, so of two that differ in it one label or both name it.
    """
    names = list(dict.fromkeys(name for each in trainings for name in each.settings if name != "method"))
    usual = {name: _usual(name, [each.settings[name] for each in trainings if name in each.settings]) for name in names}
    found = []
    for each in trainings:
        unusual = [name for name in names if name in each.settings and each.settings[name] not in usual[name]]
        told = [f"{each.words[name]} = {_short(each.settings[name])}" for name in unusual if name in each.words]
        found.append(", ".join([each.label, *told]))
    return found


def _usual(name: str, values: Sequence[Any]) -> list[Any]:
    """Return the value that is not named: that of all, 0 of what is absent then, or that of more than half."""
    if name in ABSENT and len(set(map(str, values))) > 1:
        return [0]
    counts = Counter(map(str, values))
    return [value for value in values if 2 * counts[str(value)] > len(values)][:1]


def _short(setting: Any) -> str:
    """Return a setting as short as it can be written exactly."""
    return f"{setting:g}" if isinstance(setting, float) and float(f"{setting:g}") == setting else str(setting)


def answers(
    group: Group, data: str = "test", *, alone: bool = False, scaled: bool = False, together: bool = False
) -> "pd.DataFrame":
    """Return how the runs of a group answer, one row per answer and seed, the method's own first answer first.

    The columns are `method`, `answer`, `words` (what the answer is called), `networks` (at test time), `runs` (that are
    trained for it), `seeds`, and the metrics.

    Args:
        group: the evaluations.
        data: the split, or the name of shifted data or outliers; metrics of several severities are averaged.
        alone: also the vertices, averaged over them ("alone"), as the first.
        scaled: also each answer after temperature scaling ("scaled"), where temperatures were fitted in every run.
        together: also ensembles of several runs ("runs").
    """
    import pandas as pd

    frame = group.frame
    frame = frame[frame["data"] == data]
    metrics = [each.name for each in group.evaluations[0].metrics if each.name in frame]
    rows: list[dict[str, Any]] = []
    if alone and group.shape["kind"] != "single":
        rows += _alone(group, frame, metrics)
    own = _own(group, frame, metrics)
    rows += own
    if scaled:
        rows += _scaled(own, metrics)
    if together:
        for each in group.ensembles:
            part = frame[frame["seeds"] == seeds_of(each)]
            words, size = each.answers[0].words, each.answers[0].networks
            rows += _means(part, metrics, RUNS, words, size, size)
    made = [{"method": group.label, **{k: v for k, v in row.items() if k != "scaled"}} for row in rows]
    return pd.DataFrame(made, columns=["method", "answer", "words", "networks", "runs", "seeds", *metrics])


def _means(
    part: "pd.DataFrame", metrics: Sequence[str], answer: str, words: str, networks: int, runs: int = 1
) -> list[dict[str, Any]]:
    """Return a row for each seed, with the means of the metrics over all that it has."""
    about = {"answer": answer, "words": words, "networks": networks, "runs": runs}
    return [
        {**about, "seeds": seeds, **{name: float(some[name].mean(skipna=False)) for name in metrics}}
        for seeds, some in part.groupby("seeds", sort=False)
    ]


def _own(group: Group, frame: "pd.DataFrame", metrics: Sequence[str]) -> list[dict[str, Any]]:
    single, rows = group.shape["kind"] == "single", []
    for each in group.evaluations[0].answers:
        part = frame[(frame["answer"] == each.name) & (frame["seeds"].map(len) == 1)]
        told = {one.words for record in group.evaluations for one in record.answers if one.name == each.name}
        words = each.words if len(told) == 1 else OVER_RUNS.get(each.name, each.words)
        kind = "network" if single and each.name == "midpoint" else each.name
        extra = [f"scaled_{name}" for name in metrics if f"scaled_{name}" in part]
        for made in _means(part, [*metrics, *extra], kind, words, each.networks):
            after = {name: made.pop(f"scaled_{name}") for name in metrics if f"scaled_{name}" in made}
            rows.append({**made, "scaled": after})
    return rows


def _scaled(own: Sequence[dict[str, Any]], metrics: Sequence[str]) -> list[dict[str, Any]]:
    found = []
    for name in dict.fromkeys(row["answer"] for row in own):
        rows = [row for row in own if row["answer"] == name]
        if all(row["scaled"] and row["scaled"][metrics[0]] == row["scaled"][metrics[0]] for row in rows):
            words = f"{rows[0]['words']}, temperature-scaled"
            found += [{**row, **row["scaled"], "answer": SCALED, "words": words} for row in rows]
    return found


def _alone(group: Group, frame: "pd.DataFrame", metrics: Sequence[str]) -> list[dict[str, Any]]:
    points = frame[(frame["kind"] == "point") & (frame["seeds"].map(len) == 1)]
    if group.shape["kind"] == "interval":
        ends = points[points["alpha"].isin((0.0, 1.0))]
        word = "ends" if group.shape["members"] == "vertices" else group.shape["members"]
    else:
        ends, word = points[points["role"] == "vertex"], group.shape["members"]
    return _means(ends, metrics, ALONE, f"{word}, on average", 1)


@dataclass(frozen=True)
class Compared:
    """A metric of two answers over the seeds that both have."""

    seeds: list[int]
    first: Spread
    second: Spread
    difference: Difference
    complete: bool  # neither has a seed that the other lacks


def compare(first: "pd.DataFrame", second: "pd.DataFrame", metric: str) -> Compared | None:
    """Return how two answers compare, paired by the seed; None where they have no seed in common.

    Each is the rows of one answer, as `answers` returns them. An ensemble of runs is compared with the mean over the
    seeds of its members.
    """
    sides = [dict(zip(each["seeds"], each[metric], strict=True)) for each in (first, second)]
    units = max(sides, key=lambda by: max(map(len, by), default=0))
    found = {unit: [_at(side, unit) for side in sides] for unit in units}
    pairs = {unit: (a, b) for unit, (a, b) in found.items() if a is not None and b is not None}
    if not pairs:
        return None
    ours, theirs = (list(side) for side in zip(*pairs.values(), strict=True))
    seeds = sorted({seed for unit in pairs for seed in unit})
    every = [{seed for unit in side for seed in unit} for side in sides]
    return Compared(seeds, spread(ours), spread(theirs), paired(ours, theirs), set(seeds) == every[0] == every[1])


def _at(side: dict[tuple[int, ...], float], unit: tuple[int, ...]) -> float | None:
    """Return the value with these seeds, or its mean over single ones; None where one is missing."""
    found = [side.get(unit)] if unit in side else [side.get((seed,)) for seed in unit]
    values = [value for value in found if value is not None]
    return sum(values) / len(values) if len(values) == len(found) else None


def difference(answer: "pd.DataFrame", reference: "pd.DataFrame", metric: str) -> Difference | None:
    """Return the difference of an answer to a reference over all of its seeds; None where the reference lacks one."""
    found = compare(answer, reference, metric)
    wanted = {seed for unit in answer["seeds"] for seed in unit}
    return found.difference if found is not None and set(found.seeds) == wanted else None
