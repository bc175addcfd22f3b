"""The paper's figures, each by its name: planned with their costs, trained, measured, drawn and judged."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from subspaces.core import files
from subspaces.errors import ArgumentError
from subspaces.experiments.studies import tables
from subspaces.experiments.studies.catalogue import RULE, Plan, Reproduced
from subspaces.experiments.studies.catalogue.claims import HEADS, MANY, VERDICTS, counted
from subspaces.experiments.studies.catalogue.program import ALL, Program, plan
from subspaces.experiments.studies.setting import Folder, Setting, train_missing
from subspaces.experiments.studies.tables import Result, Table
from subspaces.experiments.training.display import Mode
from subspaces.experiments.training.runs import Run, RunError
from subspaces.experiments.training.trainer import LastTrainingError, TrainingError
from subspaces.experiments.training.turns import Failure

SCHEMA = 1


def reproduce(
    name: str | Sequence[str] = ALL,
    *,
    scale: str = "smoke",
    on: str | Sequence[str] | None = None,
    seeds: Sequence[int] | None = None,
    data: Folder | None = None,
    runs: Folder = "runs",
    out: Folder = "reproduced",
    show: Mode = "bar",
    tensorboard: bool = True,
    **changes: Any,
) -> "Reproduction":
    """Train and measure what is missing of figures of the paper, draw them, and judge what the paper claims.

    Runs are shared between figures, and with all other runs of the same recipes in the folder. What was interrupted
    continues.

    Args:
        name: of an exhibit, or several; `subspaces reproduce list` lists them. "all" are all.
        scale: "smoke", a small network on digits in minutes on a CPU, or "paper", the paper's own networks and data.
        on: the networks and data to make them on, such as "cifar10"; by default all that the paper has.
        seeds: train everything once for each of these; by default 0, 1 and 2.
        data: the folder with the data sets; by default `data`.
        runs: the folder of the run folders, those that are there and those that are trained.
        out: the folder for tables, pictures and claims.
        show: "bar" for progress bars, "json" for a line per epoch on standard output, "quiet".
        tensorboard: also write the log for TensorBoard, where that is installed.
        changes: any field of `Execution` to set.

    Example:
        >>> reproduction = ss.reproduce("along", scale="smoke", seeds=[0, 1])
        >>> [(each.claim.sentence, each.verdict) for one in reproduction.exhibits for each in one.judged]
    """
    where: dict[str, Any] = {"data": data, "runs": runs, "out": out, "show": show, "tensorboard": tensorboard}
    return run(plan(name, scale, Setting.of(seeds=seeds, **where, **changes), on))


def run(plan: Program, told: Callable[[Reproduced], None] = lambda made: None) -> "Reproduction":
    """Train, measure, draw, judge and write what is missing; `told` is told of each exhibit that is made.

    What is on one bench is trained together. Exhibits whose runs are all trained are made also where another has
    failed, which is raised in the end.
    """
    if not plan.plans:
        reasons = dict.fromkeys(each.reason for each in plan.obstacles)
        raise ArgumentError(f"nothing of it is possible here: {'; '.join(reasons)}")
    made, failures = list[Reproduced](), list[Failure]()
    with files.made(plan.setting.out):
        for plans in plan.benches:
            failures += _train(plans)
            for one in (one for one in plans if not failures or _trained(one)):
                made.append(one.exhibit.run(one))
                told(made[-1])
        if failures and not made:
            raise failures[0]
        written = Reproduction(plan, made).write(plan.setting.out)
    if failures:
        raise failures[0]
    return written


def _train(plans: Sequence[Plan]) -> list[Failure]:
    """Train every run of plans on one bench together; return what went wrong with one, which stops no other."""
    together = {one.key: one for plan in plans for one in plan.recipes}
    try:
        train_missing(list(together.values()), plans[0].setting)
    except LastTrainingError:
        raise
    except (TrainingError, RunError) as error:
        return [error]
    return []


def _trained(plan: Plan) -> bool:
    return all(Run.under(plan.setting.runs, one).finished for one in plan.recipes)


@dataclass(frozen=True)
class Reproduction(Result):
    """The claims of all exhibits that were made."""

    name: ClassVar[str] = "claims"
    program: Program
    exhibits: list[Reproduced] = field(default_factory=list)

    def tables(self) -> list[Table]:
        rows = [
            [made.exhibit.name, made.exhibit.where, made.plan.bench.name, *each.cells()]
            for made in self.exhibits
            for each in made.judged
        ]
        title = f"What the paper claims, at the scale {self.program.scale.name}"
        return [Table(title, ("exhibit", "in the paper", "on", *HEADS), rows, left=5)]

    @property
    def counts(self) -> dict[str, int]:
        """How many claims have each verdict."""
        verdicts = [each.verdict for made in self.exhibits for each in made.judged]
        return {verdict: verdicts.count(verdict) for verdict in VERDICTS}

    def notes(self) -> list[str]:
        scale = self.program.scale
        verdicts = [each.verdict for made in self.exhibits for each in made.judged]
        seeds = tables.named_seeds(self.seeds)
        missing = dict.fromkeys(f"{each.plan.bench.name}: {each.reason}" for each in self.program.obstacles)
        return [
            f"Scale {scale.name}: {scale.meaning}.",
            f"{len(verdicts)} claims, {seeds}: {counted(verdicts)}.",
            RULE,
            MANY,
            *(f"Not made, on {reason}" for reason in missing),
        ]

    @property
    def seeds(self) -> list[int]:
        """The seeds of the runs, but for those that are in ensembles alone."""
        return sorted({one.seed for plan in self.program.plans for one in plan.study.recipes})

    def summary(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "scale": self.program.scale.name,
            "meaning": self.program.scale.meaning,
            "seeds": self.seeds,
            "rule": RULE,
            "counts": self.counts,
            "environments": tables.environments(_runs(self.program)),
            "exhibits": [
                {
                    "exhibit": made.exhibit.name,
                    "where": made.exhibit.where,
                    "shows": made.exhibit.shows,
                    "bench": made.plan.bench.name,
                    "runs": len(made.plan.recipes),
                    "claims": [each.summary() for each in made.judged],
                }
                for made in self.exhibits
            ],
            "not_made": [
                {"exhibit": each.plan.exhibit.name, "bench": each.plan.bench.name, "reason": each.reason}
                for each in self.program.obstacles
            ],
        }

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        found = [
            {"exhibit": made.exhibit.name, "where": made.exhibit.where, "bench": made.plan.bench.name, **each.as_row()}
            for made in self.exhibits
            for each in made.judged
        ]
        return {"claims": found}

    def undrawn(self) -> list[str] | None:
        return []  # each exhibit has its own picture


def _runs(program: Program) -> list[Run]:
    return [Run.under(program.setting.runs, one) for one in program.recipes]
