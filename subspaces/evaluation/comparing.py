"""Evaluations of several runs: grouped by what was trained, over seeds, and how their answers compare."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation.answers import OVER_RUNS
from subspaces.evaluation.evaluation import Evaluation
from subspaces.evaluation.rows import Answered, Training
from subspaces.evaluation.statistics import Difference, Spread, paired, spread
from subspaces.text import nearest

if TYPE_CHECKING:
    import pandas as pd

ABSENT = ("validation", "dropout", "label_smoothing", "trunk", "branch")  # named only where they are not 0
ALONE, SCALED, RUNS = "alone", "scaled", "runs"
SPLIT = "test"
KEYS = ("method", "answer", "words", "networks", "runs", "seeds")


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
        """Whether it is one network."""
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
        frames = [_with_seeds(self.label, each) for each in (*self.evaluations, *self.ensembles)]
        return pd.concat(frames, ignore_index=True)


def seeds_of(record: Evaluation) -> tuple[int, ...]:
    """Return the seeds of the runs that were evaluated together; (0,) of a family that is no run."""
    return (0,) if record.training is None else tuple(record.training.seeds)


def of_seeds(frame: "pd.DataFrame", seeds: tuple[int, ...]) -> "pd.DataFrame":
    """Return the rows of one evaluation of a group."""
    return frame.loc[[each == seeds for each in frame["seeds"]]]


def _with_seeds(label: str, record: Evaluation) -> "pd.DataFrame":
    frame = record.frame
    frame.insert(0, "method", label)
    frame.insert(1, "seeds", [seeds_of(record)] * len(frame))
    return frame


def groups_of(evaluations: Iterable[Evaluation]) -> list[Group]:
    """Group evaluations by what was trained: single networks, lines, curves, simplexes, and then all others."""
    found: dict[str, list[Evaluation]] = {}
    ensembles: dict[str, list[Evaluation]] = {}
    others: list[Evaluation] = []
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
    return [
        in_words(each, [name for name in names if name in each.settings and each.settings[name] not in usual[name]])
        for each in trainings
    ]


def in_words(training: Training, names: Iterable[str]) -> str:
    """Return the method in words, with some of its settings, unless they are in these words already."""
    told = [f"{training.words[name]} = {_short(training.settings[name])}" for name in names if name in training.words]
    return ", ".join([training.label, *told])


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
    group: Group,
    data: str = SPLIT,
    *,
    alone: bool = False,
    scaled: bool = False,
    together: bool = False,
    of: Sequence[str] = (),
) -> "pd.DataFrame":
    """Return how the runs of a group answer, one row per answer and seed, the method's own first answer first.

    The columns are `method`, `answer`, `words` (what the answer is called), `networks` (at test time), `runs` (that are
    trained for it), `seeds`, and the metrics.

    Args:
        group: the evaluations.
        data: the split, or the name of shifted data or outliers; metrics of several severities are averaged.
        alone: also the vertices, averaged over them ("alone"), as the first.
        scaled: also each answer after temperature scaling ("scaled"), where temperatures were fitted in every run.
        together: also ensembles of several runs ("runs"), no run in two of one size.
        of: names of the metrics; by default all that the task has.
    """
    import pandas as pd

    frame = group.frame
    frame = frame[frame["data"] == data]
    wanted = of or [each.name for each in group.evaluations[0].metrics]
    names = [name for name in wanted if name in frame]
    rows: list[dict[str, Any]] = []
    if alone and not group.single:
        rows += _alone(group, frame, names)
    own = _own(group, frame, names)
    rows += own
    if scaled:
        rows += _scaled(own, names)
    if together:
        rows += _together(group, frame, names)
    made = [{"method": group.label, **{k: v for k, v in row.items() if k != "scaled"}} for row in rows]
    return pd.DataFrame(made, columns=[*KEYS, *names])


def _together(group: Group, frame: "pd.DataFrame", metrics: Sequence[str]) -> list[dict[str, Any]]:
    """Return ensembles of runs by the seeds of those members that are in the group; those of one size share no run."""
    rows: list[dict[str, Any]] = []
    for each in group.ensembles:
        size, words = each.answers[0].networks, each.answers[0].words
        members = tuple(seed for seed in seeds_of(each) if seed in group.seeds)
        used = {seed for row in rows if row["networks"] == size for seed in row["seeds"]}
        if members and not used & set(members):
            part = of_seeds(frame, seeds_of(each))
            rows += [{**row, "seeds": members} for row in _means(part, metrics, RUNS, words, size, size)]
    return rows


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
    rows = []
    for each in group.evaluations[0].answers:
        part = of_answer(group, frame, each.name)
        told = {one.words for record in group.evaluations for one in record.answers if one.name == each.name}
        words = each.words if len(told) == 1 else OVER_RUNS.get(each.name, each.words)
        kind = "network" if group.single and each.name == "midpoint" else each.name
        extra = [f"scaled_{name}" for name in metrics if f"scaled_{name}" in part]
        for made in _means(part, [*metrics, *extra], kind, words, each.networks):
            after = {name: made.pop(f"scaled_{name}") for name in metrics if f"scaled_{name}" in made}
            rows.append({**made, "scaled": after})
    return rows


def of_answer(group: Group, frame: "pd.DataFrame", name: str) -> "pd.DataFrame":
    """Return the rows of an answer of each run."""
    known = {seeds_of(one): each for one in group.evaluations for each in one.answers if each.name == name}

    def wanted(seeds: tuple[int, ...], role: str, alphas: Any, average: str, networks: int) -> bool:
        each = known.get(seeds)
        return each is not None and (role, alphas, average, networks) == _about(each)

    about = (frame[name] for name in ("seeds", "role", "alphas", "average", "networks"))
    return frame.loc[[wanted(*row) for row in zip(*about, strict=True)]]


def _about(answered: Answered) -> tuple[Any, ...]:
    alphas = tuple(tuple(alpha) if isinstance(alpha, list) else alpha for alpha in answered.alphas)
    return answered.role, alphas, answered.average or "", answered.networks


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
    if group.interval:
        ends = points[points["alpha"].isin((0.0, 1.0))]
        ends = ends[ends.groupby(ends["seeds"].map(str))["alpha"].transform("nunique") == 2]
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


def check_split(group: Group, data: str) -> None:
    """Refuse evaluations without a split, and name those that there are."""
    for each in group.evaluations:
        if data not in each.splits:
            hint = nearest(data, each.splits) if each.splits else f"run `subspaces evaluate {place(each)}`"
            raise UserError(f"{place(each)} was not evaluated on {data!r}: {hint}")


def place(record: Evaluation) -> str:
    """Return the folder of a run, or the name of an evaluation."""
    return record.training.folder if record.training is not None and record.training.folder else record.name


def standard_for(group: Group, groups: Iterable[Group]) -> Group | None:
    """Return the standard training that differs from a method's in nothing but the method."""
    if group.training is None:
        return None
    ours = group.training
    for other in groups:
        if other is not group and other.training is not None and other.training.settings.get("method") == "standard":
            theirs = other.training.recipe
            shared = ours.settings.keys() & theirs.keys() - {"method", "trunk"}
            if all(ours.settings[name] == theirs[name] for name in shared):
                return other
    return None


def heading(trainings: Sequence[Training], *more: str) -> str:
    """Return what runs have in common, for a title: data set, label noise, network; and what is said beside."""
    noises, networks = ({getattr(each, name) for each in trainings} for name in ("label_noise", "network"))
    noise = f", {100 * noises.pop():g} % label noise" if noises not in ({0.0}, set()) and len(noises) == 1 else ""
    data = [f"{trainings[0].data}{noise}"] if trainings else []
    return " · ".join(part for part in (*data, *(networks if len(networks) == 1 else ()), *more) if part)
