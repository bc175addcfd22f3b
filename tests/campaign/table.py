"""Outcomes as a table and a list, for a terminal and as Markdown."""

import os
import platform
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from campaign.verdict import Outcome

COLUMNS = ("kind", "of what", "cases", "same answer", "refused", "recovered", "harmless", "bad")
WORDS = {"same": "same answer", "same, made anew": "same answer"}


def rows(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """Return a row for each kind and part of it, and one for all."""
    parts: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in outcomes:
        parts.setdefault((outcome.kind, outcome.what), []).append(outcome)
    parts = dict(sorted(parts.items()))
    for kind in dict.fromkeys(outcome.kind for outcome in outcomes):
        parts[kind, "all"] = [outcome for outcome in outcomes if outcome.kind == kind]
    return [(*names, *_counts(found)) for names, found in sorted(parts.items(), key=lambda item: item[0][0])]


def _counts(outcomes: Sequence[Outcome]) -> tuple[str, ...]:
    counts = Counter("bad" if one.bad else WORDS.get(one.good, one.good) for one in outcomes)
    return (str(len(outcomes)), *(str(counts[column] or "") for column in COLUMNS[3:]))


def as_text(outcomes: Sequence[Outcome]) -> str:
    """Return the table for a terminal."""
    lines = [COLUMNS, *rows(outcomes)]
    widths = [max(len(line[at]) for line in lines) for at in range(len(COLUMNS))]
    shown = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(line.rstrip() for line in shown)


@dataclass(frozen=True)
class Campaign:
    """What is needed to repeat a campaign, and how long it took."""

    command: str
    seed: int
    commit: str
    seconds: float
    jobs: int


def repeat(outcome: Outcome, campaign: Campaign) -> str:
    """Return the command that runs one case again and keeps its folder."""
    return f"python -m campaign --seed {campaign.seed} --only {outcome.kind}:{outcome.index} --keep FOLDER"


def bad_ones(outcomes: Sequence[Outcome], campaign: Campaign) -> list[str]:
    """Return what is wrong with each bad case, what was done, and how to do it again."""
    return [
        f"{one.kind}:{one.index}  {one.bad}\n    {one.told}\n    {repeat(one, campaign)}" for one in outcomes if one.bad
    ]


def as_markdown(outcomes: Sequence[Outcome], campaign: Campaign) -> str:
    """Return the table with all that a reader needs to repeat it."""
    head = ["| " + " | ".join(line) + " |" for line in (COLUMNS, ("---",) * len(COLUMNS), *rows(outcomes))]
    bad = [f"- `{one.kind}:{one.index}` {one.bad} ({one.told})" for one in outcomes if one.bad]
    minutes, seconds = divmod(round(campaign.seconds), 60)
    return "\n".join(
        [
            "# Damage, kills, crashes, nonsense and malice",
            "",
            f"`{campaign.command}`, seed {campaign.seed}, commit {campaign.commit}, {_hardware()}, Python "
            f"{platform.python_version()}, {campaign.jobs} processes, {minutes} min {seconds} s.",
            "",
            "A case is good if the answer is bit for bit that of an undamaged and undisturbed run (same answer; "
            "recovered, after a kill or crash), or if the command is refused with one line that names the file and "
            "says what to do, and nothing else is changed (refused). Harmless: nothing ran that should not.",
            "",
            *head,
            "",
            f"{len(bad)} bad cases of {len(outcomes)}." if bad else f"No bad case among {len(outcomes)}.",
            *bad,
            "",
        ]
    )


def _hardware() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU")
    return f"{name}, {len(os.sched_getaffinity(0))} cores"
