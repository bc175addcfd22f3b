"""What recipes are called beside each other, and in which order they come."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from subspaces.experiments.methods import METHODS
from subspaces.experiments.training.recipe import Recipe, all_fields

ABSENT = ("validation", "dropout", "label_smoothing", "trunk", "branch")  # not worth a word where they are 0


def place(recipe: Recipe) -> tuple[Any, ...]:
    """Return what groups are sorted by: the order in which a shell lists folders means nothing."""
    own = recipe.definition.own().values()
    return (list(METHODS).index(recipe.method), *own, *recipe.distinguishing().values())


def heading(recipes: Sequence[Recipe], *told: str) -> str:
    """Return what recipes share, for a title: data set, label noise, network, and what is told beside."""
    noises, networks = ({getattr(recipe, name) for recipe in recipes} for name in ("label_noise", "network"))
    noise = f", {100 * noises.pop():g} % label noise" if noises not in ({0.0}, set()) and len(noises) == 1 else ""
    dataset = [f"{recipes[0].data_name}{noise}"] if recipes else []
    return " · ".join(part for part in (*dataset, *(networks if len(networks) == 1 else ()), *told) if part)


def labels(recipes: Sequence[Recipe]) -> list[str]:
    """Return the method of each recipe in words, with the fields in which it is not as usual among the recipes.

    A field has one usual value at most, so of two recipes that differ in it one label or both tell it.
    """
    fields = [recipe.distinguishing() for recipe in recipes]
    names = [name for name in all_fields() if name != "method"]
    usual = {name: _usual(name, [each[name] for each in fields if name in each]) for name in names}
    return [
        in_words(recipe, [name for name in names if name in each and each[name] not in usual[name]])
        for recipe, each in zip(recipes, fields, strict=True)
    ]


def in_words(recipe: Recipe, names: Iterable[str]) -> str:
    """Return the method of a recipe in words, with some of its fields, unless they are in these words already."""
    known = {name: all_fields()[name].metadata for name in names}
    told = {name: text.get("symbol") or name.replace("_", " ") for name, text in known.items() if "label" not in text}
    settings = [f"{word} = {_short(getattr(recipe, name))}" for name, word in told.items()]
    return ", ".join([recipe.definition.label(), *settings])


def _usual(name: str, values: Sequence[Any]) -> list[Any]:
    """Return the value that goes without saying: that of all, 0 of what is absent then, or that of more than half."""
    if name in ABSENT and len(set(values)) > 1:
        return [0]
    return [value for value, count in Counter(values).items() if 2 * count > len(values)]


def _short(setting: Any) -> str:
    """Return a setting as short as it can be told exactly."""
    return f"{setting:g}" if isinstance(setting, float) and float(f"{setting:g}") == setting else str(setting)
