"""Evaluations of several runs as one table: grouped by what was trained, a row for each answer and seed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation.answers import RUNS
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.rows import Training, hashable
from subspaces.evaluation.statistics import Difference, paired
from subspaces.text import nearest

if TYPE_CHECKING:
    import pandas as pd

ABSENT = ("validation", "dropout", "label_smoothing", "start_from")  # named only where they are not 0
SPLIT = "test"
ANSWER = ["seeds", "role", "alphas", "average", "networks"]  # the columns by which a row is that of an answer


@dataclass(frozen=True)
class Group:
    """Evaluations of runs that differ in their seed only, or one evaluation of anything else.

    `ensembles` are evaluations of several of these runs together, whose `training.seeds` are more than one. `rows`
    stand in place of the frame of all evaluations, for a view of some of it.
    """

    label: str
    evaluations: list[Evaluation]
    ensembles: list[Evaluation] = field(default_factory=list)
    rows: "pd.DataFrame | None" = field(default=None, repr=False, compare=False)

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

    @property
    def single(self) -> bool:
        return bool(self.shape["kind"] == "single")

    @property
    def interval(self) -> bool:
        """Whether alpha is a number: a line or a curve."""
        return bool(self.shape["kind"] == "interval")

    @property
    def vertices(self) -> int:
        """How many vertices it has; a single network has one."""
        return int(self.shape["vertices"])

    @property
    def trained_alone(self) -> bool:
        """Whether one network was trained, whatever was made of it: its log has no distance between vertices."""
        return self.training is None or self.training.vertices == 1

    @cached_property
    def frame(self) -> "pd.DataFrame":
        """The frames of all evaluations below each other, with the columns `method` and `seeds` before."""
        import pandas as pd

        if self.rows is not None:
            return self.rows
        frames = []
        for each in (*self.evaluations, *self.ensembles):
            frames.append(frame := each.frame)
            frame.insert(0, "method", self.label)
            frame.insert(1, "seeds", [seeds_of(each)] * len(frame))
        return pd.concat(frames, ignore_index=True)

    @cached_property
    def answered(self) -> "pd.DataFrame":
        """The rows of `frame` that are of answers, once for each: `answer`, in `words`, of how many `runs`.

        The answers are those of the first run, and the ensembles of runs.
        """
        import pandas as pd

        words = {each.name: each.words for each in self.evaluations[0].answers}
        about = []
        for name in (*words, RUNS):
            for one in (*self.evaluations, *self.ensembles):
                for each in (each for each in one.answers if each.name == name):
                    answer = "network" if self.single and name == "midpoint" else name
                    runs = each.networks if name == RUNS else 1
                    key = (seeds_of(one), each.role, hashable(each.alphas), each.average or "", each.networks)
                    about.append((answer, words.get(name, each.words), runs, *key))
        made = pd.DataFrame(about, columns=["answer", "words", "runs", *ANSWER])
        return made.merge(self.frame.drop(columns="answer"), on=ANSWER)


def seeds_of(record: Evaluation) -> tuple[int, ...]:
    """Return the seeds of the runs that were evaluated together; (0,) of a family that is no run."""
    return (0,) if record.training is None else tuple(record.training.seeds)


def of_seeds(frame: "pd.DataFrame", seeds: tuple[int, ...]) -> "pd.DataFrame":
    """Return the rows of one evaluation of a group."""
    return frame.loc[[each == seeds for each in frame["seeds"]]]


def groups_of(evaluations: Iterable[Evaluation]) -> list[Group]:
    """Group evaluations by what was trained: single networks, lines, curves, simplexes, and then all others."""
    several = list(evaluations)
    runs: dict[str, dict[tuple[int, ...], Evaluation]] = {}
    for each in several:
        if each.training is not None:
            same = runs.setdefault(each.training.group, {}).setdefault(seeds_of(each), each)
            if same is not each:
                raise ArgumentError(f"{same.name} and {each.name} are the same run: leave one of them out")
    found = []
    for by_seeds in runs.values():
        members = [by_seeds[seeds] for seeds in sorted(by_seeds) if len(seeds) == 1]
        ensembles = [each for seeds, each in by_seeds.items() if len(seeds) > 1]
        if members and members[0].training is not None:
            found.append((members[0].training, members, sorted(ensembles, key=lambda one: len(seeds_of(one)))))
    found.sort(key=lambda one: one[0].order)
    labels = labels_of([training for training, _, _ in found])
    groups = [Group(label, members, beside) for label, (_, members, beside) in zip(labels, found, strict=True)]
    others = [each for each in several if each.training is None]
    names = [each.name for each in others]  # with a number where two have the same
    numbers = [f" {names[:at].count(name) + 1}" if names.count(name) > 1 else "" for at, name in enumerate(names)]
    return groups + [Group(one.name + number, [one]) for one, number in zip(others, numbers, strict=True)]


# Words


def labels_of(trainings: Sequence[Training]) -> list[str]:
    """Return the method of each in words, with the settings in which it differs from most of them, or that are not 0.

    A setting has one usual value at most, so of two that differ in it one label or both name it.
    """

    def unusual(name: str, value: Any) -> bool:
        values = [str(each.settings[name]) for each in trainings if name in each.settings]
        if name in ABSENT and len(set(values)) > 1:
            return bool(value)
        return 2 * values.count(str(value)) <= len(values)

    names = list(dict.fromkeys(name for each in trainings for name in each.settings if name != "method"))
    return [
        in_words(each, [name for name in names if name in each.settings and unusual(name, each.settings[name])])
        for each in trainings
    ]


def in_words(training: Training, names: Iterable[str]) -> str:
    """Return the method in words, with some of its settings, unless they are in these words already."""

    def short(setting: Any) -> str:
        return f"{setting:g}" if isinstance(setting, float) and float(f"{setting:g}") == setting else str(setting)

    told = [f"{training.words[name]} = {short(training.settings[name])}" for name in names if name in training.words]
    return ", ".join([training.label, *told])


def heading(trainings: Sequence[Training], *more: str) -> str:
    """Return what runs have in common, for a title: data set, label noise, network; and what is said beside."""
    noises, networks = ({getattr(each, name) for each in trainings} for name in ("label_noise", "network"))
    noise = f", {100 * noises.pop():g} % label noise" if noises not in ({0.0}, set()) and len(noises) == 1 else ""
    data = [f"{trainings[0].data}{noise}"] if trainings else []
    return " · ".join(part for part in (*data, *(networks if len(networks) == 1 else ()), *more) if part)


def place(record: Evaluation) -> str:
    """Return the folder of a run, or the name of an evaluation."""
    return record.training.folder if record.training is not None and record.training.folder else record.name


def check_split(group: Group, data: str) -> None:
    """Refuse evaluations without a split, and name those that there are."""
    for each in group.evaluations:
        if data not in each.splits:
            hint = nearest(data, each.splits) if each.splits else f"run `subspaces evaluate {place(each)}`"
            raise UserError(f"{place(each)} was not evaluated on {data!r}: {hint}")


def standard_for(group: Group, groups: Iterable[Group]) -> Group | None:
    """Return the standard training that differs from a method's in nothing but the method."""
    if (ours := group.training) is None:
        return None
    for other in groups:
        theirs = other.training
        if other is not group and theirs is not None and theirs.settings.get("method") == "standard":
            shared = ours.settings.keys() & theirs.recipe.keys() - {"method"}
            if all(ours.settings[name] == theirs.recipe[name] for name in shared):
                return other
    return None


@dataclass(frozen=True)
class Compared:
    """A metric of two answers over the seeds that both have."""

    seeds: list[int]
    difference: Difference


def compare(first: "pd.DataFrame", second: "pd.DataFrame", metric: str) -> Compared | None:
    """Return how two answers compare, paired by the seed; None where they have no seed in common.

    Each is the rows of one answer, as `answers` returns them. An ensemble of runs is compared with the mean over the
    seeds of its members.
    """
    sides = [dict(zip(each["seeds"], each[metric], strict=True)) for each in (first, second)]
    units = max(sides, key=lambda by: max(map(len, by), default=0))
    pairs = {
        unit: (one, other)
        for unit in units
        if (one := _at(sides[0], unit)) is not None and (other := _at(sides[1], unit)) is not None
    }
    if not pairs:
        return None
    ours, theirs = (list(side) for side in zip(*pairs.values(), strict=True))
    return Compared(sorted({seed for unit in pairs for seed in unit}), paired(ours, theirs))


def _at(side: dict[tuple[int, ...], float], unit: tuple[int, ...]) -> float | None:
    """Return the value with these seeds, or its mean over single ones; None where one is missing."""
    found = [side.get(unit)] if unit in side else [side.get((seed,)) for seed in unit]
    values = [value for value in found if value is not None]
    return sum(values) / len(values) if len(values) == len(found) else None
