"""Training and measuring what is missing of methods on the same data, for a comparison and every study."""

from collections.abc import Sequence
from pathlib import Path

from subspaces.api import evaluate
from subspaces.data import size_of
from subspaces.evaluation import Record
from subspaces.evaluation.cache import Measured
from subspaces.evaluation.run_ensembles import evaluate_together
from subspaces.reports.reading import Reading, grouped
from subspaces.studies.comparison import Comparison
from subspaces.studies.entries import Entry, disjoint, entries_of, entry_of_ensembles, recipe_of, run_of
from subspaces.studies.setting import Setting, independent, same
from subspaces.training.api import train_recipes
from subspaces.training.config import Recipe
from subspaces.training.runs import Run, RunError


def train_missing(recipes: Sequence[Recipe], setting: Setting) -> list[Run]:
    """Train what is missing.

    Runs with dropout come first: whether the network has any shows at once.
    """
    ordered = sorted(recipes, key=lambda one: not one.dropout)
    runs = train_recipes(
        ordered,
        setting.execution,
        data=setting.data,
        out=setting.runs,
        show=setting.show,
        tensorboard=setting.tensorboard,
    )
    found = {run.recipe.key: run for run in runs}
    return [found[one.key] for one in recipes]


def measure(runs: Sequence[Run], setting: Setting, reference: Recipe | None) -> Comparison:
    """Measure what is missing of finished runs on the same data, and return all of it."""
    told = {"dropout_passes": setting.dropout_passes, **setting.measuring(), **setting.evaluation}
    records = evaluate(runs, **told)
    splits = records[0].dataset["splits"]
    images = _training_images(runs[0].recipe, records[0], setting.data)
    groups = grouped(Reading(run, record) for run, record in zip(runs, records, strict=True))
    entries, together, standard = list[Entry](), list[Measured](), independent([run.recipe for run in runs])
    for group in groups:
        entries += entries_of(group, list(splits), images, setting.scaled)
        if any(same(recipe_of(group), one) for one in standard):
            members = [disjoint(len(group.runs), size) for size in setting.sizes(len(group.runs))]
            chosen = [[run_of(group.runs[index]) for index in one] for several in members for one in several]
            found = evaluate_together(chosen, to=setting.out, **setting.measuring())
            together, scores = [*together, *found], iter(found)
            for several in filter(None, members):
                entries.append(entry_of_ensembles(group, several, [next(scores) for _ in several], images))
    known = (entry for entry in entries if reference is not None and same(entry.recipe, reference))
    return Comparison(entries, next(known, None), list(runs), images, splits["test"], groups=groups, together=together)


def _training_images(recipe: Recipe, record: Record, data: Path | None) -> int:
    """Return how many images runs were trained on: batch-norm statistics are of all of them, else the data says it."""
    if record.statistics["images"]:
        return int(record.statistics["images"])
    size = size_of(recipe.dataset, data, count=True)
    if size is None:
        raise RunError(f"{record.name}: how many images it was trained on is not known without its data; see --data")
    return size.training - recipe.validation
