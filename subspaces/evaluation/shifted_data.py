"""Shifted examples, made of the test images or loaders of the user's own; and outliers."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from subspaces.core import checks
from subspaces.errors import ArgumentError
from subspaces.evaluation.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from subspaces.evaluation.measuring import Data
from subspaces.evaluation.rows import OUTLIERS
from subspaces.evaluation.subject import Subject
from subspaces.text import nearest

EXPECTED = "names such as ['fog', 'snow'], 'all', 'extra', a Corruptions, or loaders such as {'rain': {1: loader}}"
EXTRA = "extra"  # the group of corruptions that are kept for validation
Given = dict[tuple[str, int], Iterable[Any]]
"""Loaders by name and severity, 0 where there is none."""
Outliers = dict[str, Iterable[Any] | str]
"""Loaders by name, or for runs names of data sets."""


@dataclass(frozen=True)
class Corruptions:
    """Which corruptions of the test images are measured, and how severe.

    Args:
        names: of corruptions; "all" is the usual fifteen, "extra" adds the four that are kept for validation.
        severities: from 1 to 5.
        mean, std: the constants that your own loader normalises with; a run knows its own. By default images are
            uint8, or numbers from 0 to 1.
        seed: of the random numbers of noise and the like, the same for every network.

    Example:
        >>> shifted = ss.Corruptions(["fog", "snow"], severities=[1, 3, 5], mean=(0.5,), std=(0.25,))
        >>> ss.evaluate(family, test=loader, statistics=train_loader, corruptions=shifted)
    """

    names: str | Sequence[str] = "all"
    severities: Sequence[int] = SEVERITIES
    mean: Sequence[float] | None = None
    std: Sequence[float] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        whole = {checks.whole("severities", each, 1, 5) for each in _some("severities", self.severities, "[1, 3, 5]")}
        found: dict[str, Any] = {"names": self._named(), "severities": tuple(sorted(whole))}
        for name in ("mean", "std"):
            if (given := getattr(self, name)) is not None:
                numbers = _some(name, [given] if isinstance(given, (int, float)) else given, "one for each channel")
                found[name] = tuple(checks.number(name, each) for each in numbers)
        if (self.mean is None) != (self.std is None) or min(found.get("std", (1.0,))) <= 0:
            raise ArgumentError(f"mean={self.mean}, std={self.std}: expected both, std above 0")
        found["seed"] = checks.whole("seed", self.seed, 0, 2**31)
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def _named(self) -> tuple[str, ...]:
        given = self.names
        if isinstance(given, str) and given in ("all", EXTRA):
            return tuple(each.name for each in CORRUPTIONS.values() if given == EXTRA or each.group != EXTRA)
        chosen = [given] if isinstance(given, str) else _some("names", given, "['fog', 'snow'], or 'all'")
        for name in chosen:
            if not isinstance(name, str) or name not in CORRUPTIONS:
                raise ArgumentError(f"corruptions={checks.shown(name)}: {nearest(name, ('all', EXTRA, *CORRUPTIONS))}")
        return tuple(name for name in CORRUPTIONS if name in chosen)

    @property
    def source(self) -> str:
        """The origin of the images, for the `source` column."""
        return "made" if self.seed == 0 else f"made, seed {self.seed}"


def _some(name: str, value: Any, example: str) -> list[Any]:
    found = checks.several(name, value, f"a list, such as {example}")
    if not found:
        raise ArgumentError(f"{name}={checks.shown(value)}: expected at least one, such as {example}")
    return found


def wanted(value: Any) -> Corruptions | Given | None:
    """Parse `corruptions=`."""
    if value is None or value is False or isinstance(value, Corruptions) or (isinstance(value, tuple) and not value):
        return value or None
    if value is True or isinstance(value, str) or checks.listed(value):
        return Corruptions() if value is True else Corruptions(value)
    if not isinstance(value, Mapping) or not value:
        raise ArgumentError(f"corruptions={checks.shown(value)}: expected {EXPECTED}")
    found: Given = {}
    for name, each in value.items():
        where = f"corruptions={{{name!r}: …}}"
        for severity, loader in (each if isinstance(each, Mapping) else {0: each}).items():
            found[str(name), checks.whole(f"{where}: severity", severity, 0)] = checks.batches(where, loader)
    return found


def check(subject: Subject, what: Corruptions | Given | None) -> None:
    """Raise for corruptions that cannot be made of the test examples, before anything is measured."""
    if isinstance(what, Corruptions) and subject.folder is None:
        next(subject.pictures(what.mean, what.std), None)
    elif isinstance(what, Corruptions) and what.mean is not None:
        raise ArgumentError(
            f"mean={what.mean}, std={what.std}: {subject.name} is a run, which knows its own; expected none"
        )


def sets_of(subject: Subject, what: Corruptions | Given | None) -> list[Data]:
    """Return the sets of shifted examples."""
    if isinstance(what, Corruptions):
        pairs = [(name, severity) for name in what.names for severity in what.severities]
        return [_corrupted(subject, what, name, severity) for name, severity in pairs]
    given = (what or {}).items()
    return [Data(name, partial(iter, loader), severity, "given", "given") for (name, severity), loader in given]


def _corrupted(subject: Subject, how: Corruptions, name: str, severity: int) -> Data:
    def made() -> Iterator[Any]:
        first = 0
        for images, rebuild in subject.pictures(how.mean, how.std):
            yield rebuild(corrupt(images, name, severity, seed=how.seed, first=first))
            first += len(images)

    return Data(name, made, severity, CORRUPTIONS[name].group, how.source)


def wanted_outliers(value: Any) -> Outliers:
    """Parse `outliers=`."""
    if isinstance(value, Mapping):
        return {str(name): checks.batches(f"outliers={{{name!r}: …}}", loader) for name, loader in value.items()}
    several = [] if value is None else list(value) if isinstance(value, (list, tuple)) else [value]
    if all(isinstance(each, str) for each in several):
        return {each: each for each in several}
    if not isinstance(value, Iterable):
        expected = "a loader, loaders such as {'letters': loader}, or for a run a data set such as 'mnist'"
        raise ArgumentError(f"outliers={checks.shown(value)}: expected {expected}")
    return {"outliers": checks.batches("outliers", value)}


def outliers_of(subject: Subject, sets: Outliers) -> list[Data]:
    """Return the sets of outliers; raise for those that a subject cannot be measured on."""
    if sets and subject.task.name != "classification":
        raise ArgumentError(f"outliers=…: the task is {subject.task.name}; expected a classification of examples")
    return [
        subject.named(found) if isinstance(found, str) else Data(name, partial(iter, found), 0, OUTLIERS, "given")
        for name, found in sets.items()
    ]
