"""Ensembles of independent runs: what was measured of them, found in files beside the runs."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from subspaces.evaluation.cache import Measured, Shelf
from subspaces.evaluation.run_ensembles import FILE
from subspaces.reports.reading import Group, Reading
from subspaces.training.config import Recipe
from subspaces.training.runs import Run, RunError


def beside(groups: Sequence[Group], *folders: Path) -> list[Measured]:
    """Return what `ensembles.json` holds, in the folders of the runs and in these."""
    around = [run.folder.parent for group in groups for run in group.runs]
    places = dict.fromkeys(folder.resolve() for folder in (*around, *folders))
    return [one for place in places for one in Shelf(place / FILE).read()]


def of_these(measured: Iterable[Measured], groups: Sequence[Group], split: str, images: int) -> list[Measured]:
    """Return the ensembles of networks that were trained by one of these recipes, with at least one of these runs."""
    runs = {family: run for group in groups for run in group.runs if (family := run.record.family) is not None}
    found: dict[tuple[str, ...], Measured] = {}
    for one in measured:
        families = tuple(one.key["families"])
        known = [runs[family] for family in families if family in runs]
        if known and one.images.get(split) == images and _alike(one, known[0], runs):
            found.setdefault(tuple(sorted(families)), one)
    return list(found.values())


def _alike(one: Measured, first: Reading, runs: dict[str, Reading]) -> bool:
    """Say whether all members have the recipe of the first, and the ensemble its batch-norm statistics."""
    members = [
        runs[family].recipe if family in runs else _neighbour(first.folder.parent / Path(name).name, family)
        for name, family in zip(one.key["runs"], one.key["families"], strict=True)
    ]
    if first.recipe is None:
        return False
    wanted = first.recipe.distinguishing()
    same = all(recipe is not None and recipe.distinguishing() == wanted for recipe in members)
    return same and one.key.get("batches") == first.record.statistics.get("batches")


def _neighbour(folder: Path, family: str) -> Recipe | None:
    """Return the recipe of a run that is not on the page, if its folder holds the network that was measured."""
    try:
        run = Run.open(folder)
        return run.recipe if run.family_checksum == family else None
    except RunError:
        return None
