"""What was measured on shifted data and against outliers, as the page shows it."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from subspaces.reports import shifts
from subspaces.reports.answers import Answer, own
from subspaces.reports.page.numbers import columns, described, numbers
from subspaces.reports.page.words import seeded
from subspaces.reports.reading import Group
from subspaces.reports.shifts import Changed, Condition
from subspaces.text import listed


def shift_section(groups: Sequence[Group], split: str, what: str, metrics: Sequence[str]) -> dict[str, Any] | None:
    """Return the answers on shifted data by some metrics; None where there is nothing that all were measured on."""
    measured = [group for group in groups if all(run.record.shifts for run in group.runs)]
    records = [run.record for group in measured for run in group.runs]
    found = shifts.conditions(records) if records and split == shifts.SPLIT else []
    known = [row.metrics for record in records for one in record.shifts for row in one.rows]
    names = [name for name in metrics if all(name in each for each in known)]
    severities = sorted({severity for each in found for severity in each.severities})
    answers = [one for group in measured for one in _answers(group, found, severities, names)] if found else []
    if not answers or not names:
        return None
    return {
        "lead": _lead(found, what),
        "mean": _mean(found),
        "metrics": names,
        "kinds": [each.label for each in found],
        "severities": severities,
        "answers": answers,
    }


def _lead(found: Sequence[Condition], what: str) -> str:
    """Say what the shifted data are, and what the relative change is."""
    told = dict.fromkeys(_source(each.source, what) for each in found)
    counts = listed(dict.fromkeys(f"{each.count:,}" for each in found)).replace(" and ", " or ")
    return (
        f"How good the answers are on {what} that are not like those of the test split: {_counted(found)}, "
        f"{listed(told)}, {counts} {what} each. The relative change is (b\u00a0−\u00a0a)/a, from a on the test "
        f"{what} to b on the shifted ones."
    )


def _source(source: str, what: str) -> str:
    """Say where shifted data come from."""
    made, _, seed = source.partition(", ")
    if made == "made":
        return f"made of the test {what}{seed and f' with {seed}'}"
    return "given by loaders of your own" if source == "given" else f"read from {source}"


def _mean(found: Sequence[Condition]) -> str:
    """Say what means are over."""
    over = shifts.averaged_over(found)
    without = "" if len(over) == len(found) else "; extra corruptions are not in it"
    return f"mean over {_counted(over)}{without}"


def _counted(found: Sequence[Condition]) -> str:
    one = "corruption" if all(each.group != "given" for each in found) else "set"
    strengths = shifts.strengths(found)
    return f"{len(found)} {one}{'' if len(found) == 1 else 's'}{strengths and f' at {strengths}'}"


def _answers(
    group: Group, found: Sequence[Condition], severities: Sequence[int], metrics: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the answers of a group: on the test examples, on average, and in every cell of kind and severity."""
    cells = [[_by_name(group, [_at(each, severity)]) for severity in severities] for each in found]
    return [
        {
            "group": group.label,
            "way": _way(one.before),
            "name": one.before.label,
            "clean": numbers(one.before, metrics),
            "shifted": numbers(one.after, metrics),
            "change": _changes(one, metrics),
            "cells": [[_cell(cell.get(name), metrics) for cell in line] for line in cells],
        }
        for name, one in _by_name(group, shifts.averaged_over(found)).items()
    ]


def _at(condition: Condition, severity: int) -> Condition:
    """Return one severity of shifted data; none where that was not measured."""
    return replace(condition, severities=tuple(each for each in condition.severities if each == severity))


def _by_name(group: Group, wanted: Sequence[Condition]) -> dict[str, Changed]:
    return {one.before.name: one for one in shifts.changed(group, wanted)}


def _way(answer: Answer) -> str:
    """Return an answer in words, with its seeds where they are not those of its group."""
    seeds = sorted(answer.seeds)
    return answer.name if seeds == sorted(answer.group.seeds) else f"{answer.name} ({seeded(seeds)})"


def _changes(one: Changed, metrics: Sequence[str]) -> dict[str, Any]:
    return columns([one.spread(metric) for metric in metrics])


def _cell(one: Changed | None, metrics: Sequence[str]) -> dict[str, Any] | None:
    return None if one is None else {"shifted": numbers(one.after, metrics), "change": _changes(one, metrics)}


# Outliers


def outliers_section(groups: Sequence[Group], split: str, what: str, images: int) -> dict[str, Any] | None:
    """Return how well the answers tell outliers apart, for each set of them; None where nothing was measured."""
    measured = [group for group in groups if all(run.record.outliers for run in group.runs)]
    if not measured or split != shifts.SPLIT:
        return None
    runs = [run for group in measured for run in group.runs]
    sets = [
        one
        for one in runs[0].record.outliers
        if all(any(shifts.same(one, each) for each in run.record.outliers) for run in runs)
    ]
    metrics = {each.name: each for one in sets for each in one.metrics}
    rows = [
        {"set": f"{one.name} ({one.count:,} {what})", "group": group.label, "name": each.label}
        | numbers(each, list(metrics))
        for one in sets
        for group in measured
        for each in own(shifts.against(group, one), split)
    ]
    return {"metrics": [described(each, images) for each in metrics.values()], "rows": rows} if rows else None
