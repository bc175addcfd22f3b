"""What an evaluation measures, checked before anything is."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, get_args

from torch import nn

from subspaces import values
from subspaces.evaluation.answers import ANSWERS
from subspaces.evaluation.points import GRID
from subspaces.evaluation.subject import Subject
from subspaces.text import nearest
from subspaces.training.execution import Precision

ChooseOn = Literal["auto", "validation", "test"]
PASSES = 20  # of MC-dropout
POINTS = 10_001  # of a grid, or drawn at random: days on any device
TRIANGLE = 140  # which are 10,011 points
BATCHES = 10**6
CHECKS = 100


POINTS_PANEL = "Points: where the subspace is measured"
PLANE_PANEL = "Plane: error and loss around three networks"


def _help(text: str, default: Any, panel: str | None = None, **more: Any) -> Any:
    """Return a field; `limits` are the smallest and the largest whole number that can be asked for."""
    return field(default=default, metadata={"help": text, **({"panel": panel} if panel else {}), **more})


@dataclass(frozen=True)
class Settings:
    """The points, the plane, and the split on which anything is chosen; `evaluate` says what each of them is."""

    grid: Sequence[float] = _help("Points of a line or curve, each with its opposite 1 - alpha.", GRID, POINTS_PANEL)
    random: int = _help("Random points of a simplex, and in their ensemble.", 6, POINTS_PANEL, limits=(0, POINTS))
    triangle: int = _help(
        "Grid on a triangle: into how many pieces an edge is cut; 0 for none.", 6, POINTS_PANEL, limits=(0, TRIANGLE)
    )
    choose_on: ChooseOn = _help(
        "Where the best points and the threshold are chosen: on held-out images, or on the test set, which is marked. "
        "auto: on held-out images if the run has them, else nothing is chosen.",
        "auto",
        POINTS_PANEL,
    )
    answers: Sequence[str] = _help(
        "How the networks answer, once for each way; by default as their method does.",
        (),
        POINTS_PANEL,
        choices=lambda: ANSWERS,
    )
    dropout_passes: int = _help(
        "How often MC-dropout asks a network that has dropout.", PASSES, POINTS_PANEL, limits=(1, 10_000)
    )
    plane: bool = _help("Also the plane through the first three vertices.", False, PLANE_PANEL)
    through: Sequence[Any] = _help("A plane through networks of other runs.", (), PLANE_PANEL)
    cells: int = _help("Cells of the plane in each direction.", 21, PLANE_PANEL, limits=(2, 501))
    plane_statistics_batches: int = _help(
        "Batches for the batch-norm statistics of a cell.", 50, PLANE_PANEL, limits=(1, BATCHES)
    )
    statistics_batches: int | None = _help(
        "Batches for the batch-norm statistics of a point; by default all training images.", None, limits=(1, BATCHES)
    )
    check_statistics: Sequence[int] = _help(
        "Measure some points and cells again with this many batches, to see whether that matters: 10 50 200.", ()
    )
    precision: Precision = _help("auto: bfloat16 on a GPU, or whatever the numbers that are there have.", "auto")

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> "Settings":
        """Return settings by their names; one that there is not is an error that names the nearest."""
        known = [entry.name for entry in dataclasses.fields(cls)]
        for name in given:
            if name not in known:
                raise TypeError(f"{name}=…: no such setting; {nearest(name, known)}")
        return cls(**{name: value for name, value in given.items() if not (name == "grid" and value is None)})

    def __post_init__(self) -> None:
        if self.choose_on not in get_args(ChooseOn):
            raise ValueError(f"choose_on={values.shown(self.choose_on)}: {nearest(self.choose_on, get_args(ChooseOn))}")
        self._set("grid", values.number, "a list of finite numbers, such as [0, 0.5, 1]", POINTS)
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            if "limits" in entry.metadata and (value is not None or entry.default is not None):
                values.whole(entry.name, value, *entry.metadata["limits"])
        batches = partial(values.whole, least=1, most=BATCHES, beside=" batches each")
        self._set("check_statistics", batches, "a list of numbers of batches, such as [10, 50]", CHECKS)
        self._set("answers", lambda _, name: ANSWERS.find(name).name, "a list of answers, such as ['midpoint']", None)
        self._set("through", _network, "a list of run folders, such as ['runs/a', 'runs/b:0.3']", None)
        if len(self.through) > 3:
            raise ValueError(f"through={list(map(str, self.through))}: a plane goes through three networks")

    def _set(self, name: str, check: Callable[[str, Any], Any], expected: str, most: int | None) -> None:
        """Keep a setting that has several values as a tuple of them, each checked."""
        found = values.several(name, getattr(self, name), expected, most)
        object.__setattr__(self, name, tuple(check(name, each) for each in found))

    @property
    def wants_plane(self) -> bool:
        """Whether a plane is measured."""
        return self.plane or bool(self.through)

    def chosen_on(self, subject: Subject) -> list[str]:
        """Return the split on which to choose, if there is one."""
        if self.choose_on == "auto":
            return [split for split in subject.splits if split == "validation"]
        if self.choose_on not in subject.splits:
            raise ValueError(
                f"choose_on={self.choose_on!r}: {subject.name} held no images out; train with --validation (or pass "
                "validation=), or choose on the test set, which is marked"
            )
        return [self.choose_on]


def _network(name: str, value: Any) -> Any:
    """Return what names a network of a plane: a run folder, with or without a point, or a module."""
    return value if isinstance(value, nn.Module) else values.folder(name, value)
