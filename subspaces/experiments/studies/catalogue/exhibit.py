"""What the paper shows, one thing at a time: which runs it takes, how they are measured, what is drawn and claimed."""

from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar, Generic

from subspaces.evaluation.comparing import heading
from subspaces.evaluation.curves import described
from subspaces.evaluation.statistics import Spread, shown, spread
from subspaces.experiments import locks
from subspaces.experiments.evaluating.training import training_of
from subspaces.experiments.studies.catalogue.claims import HEADS, MANY, RULE, BySeed, Claim, Judgement, P, counted
from subspaces.experiments.studies.catalogue.scales import Bench, Role, Scale
from subspaces.experiments.studies.setting import Setting
from subspaces.experiments.studies.tables import Figure, Result, Table
from subspaces.experiments.training.recipe import Recipe

SCHEMA = 1
Numbers = dict[str, dict[str, BySeed]]
"""What was measured beside answers, by method and measure, for each seed."""


@dataclass(frozen=True)
class Plan:
    """All that an exhibit takes on one bench."""

    exhibit: "Exhibit[Any]"
    bench: Bench
    study: Any  # the plan of the comparison or study that it is made by
    twins: list[Recipe] = field(default_factory=list)  # second networks, which are in ensembles alone

    @property
    def recipes(self) -> list[Recipe]:
        """Everything that is trained."""
        return [*self.study.recipes, *self.twins]

    @property
    def setting(self) -> Setting:
        """Where and how."""
        found: Setting = self.study.setting
        return found


class Exhibit(Generic[P]):
    """A figure of the paper; P is what was measured for it on one bench."""

    name: ClassVar[str]
    where: ClassVar[str]
    """In the paper."""
    shows: ClassVar[str]
    """What it shows, in a sentence without a verb."""
    roles: ClassVar[tuple[Role, ...]]
    """The networks and data that it is about."""

    def benches(self, scale: Scale) -> list[Bench]:
        """Return what plays its roles at a scale, each once."""
        found = (scale.bench(role) for role in self.roles)
        return list({bench.base.key: bench for bench in found}.values())

    def plan(self, bench: Bench, setting: Setting) -> Plan:
        """Check everything and return what is to be done; nothing is."""
        raise NotImplementedError

    def measure(self, plan: Plan) -> P:
        """Train and measure what is missing."""
        raise NotImplementedError

    def result(self, found: P) -> Result:
        """Return what was measured as a table."""
        raise NotImplementedError

    def claims(self, bench: Bench) -> list[Claim[P]]:
        """Return what the paper says of it."""
        raise NotImplementedError

    def draw(self, found: P) -> Figure:
        """Draw it."""
        return self.result(found).draw()

    def numbers_of(self, found: P) -> Numbers:
        """Return what was measured beside the result."""
        return {}

    def evaluation(self, bench: Bench) -> dict[str, Any]:
        """Return how runs are measured, as arguments of `evaluate`."""
        raise NotImplementedError

    def networks(self, plan: Plan) -> float:
        """Return how many networks are measured beside those of `evaluation`, for the estimate of time."""
        return 0.0

    def run(self, plan: Plan) -> "Reproduced":
        """Train, measure, judge and write what is missing."""
        with locks.made(plan.setting.out):
            found = self.measure(plan)
            judged = [claim.judge(found) for claim in self.claims(plan.bench)]
            return Reproduced(plan, found, judged).write(plan.setting.out)


@dataclass(frozen=True)
class Reproduced(Result):
    """An exhibit on one bench: its claims with their verdicts, and the table and picture that they stand on."""

    name: ClassVar[str] = "reproduction"
    plan: Plan
    found: Any
    judged: list[Judgement]

    @property
    def exhibit(self) -> Exhibit[Any]:
        """What was made."""
        return self.plan.exhibit

    @property
    def result(self) -> Result:
        """What was measured."""
        return self.exhibit.result(self.found)

    @property
    def title(self) -> str:
        """What is shown, and of which network and data."""
        return f"{self.exhibit.where}: {self.exhibit.shows} · {heading([*map(training_of, self.plan.recipes)])}"

    def tables(self) -> list[Table]:
        claims = Table(self.title, HEADS, [each.cells() for each in self.judged], left=2)
        return [claims, *([_table(numbers)] if (numbers := self.numbers) else []), *self.result.tables()]

    @property
    def numbers(self) -> dict[str, dict[str, Spread]]:
        """What was measured beside answers, over the seeds."""
        found = self.exhibit.numbers_of(self.found)
        return {
            label: {name: spread(list(values.values())) for name, values in each.items()}
            for label, each in found.items()
        }

    def notes(self) -> list[str]:
        verdicts = counted([each.verdict for each in self.judged])
        scale = self.plan.bench.scale
        return [f"Scale {scale.name}: {scale.meaning}. Claims: {verdicts}.", RULE, MANY, *self.result.notes()]

    def summary(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "exhibit": self.exhibit.name,
            "where": self.exhibit.where,
            "shows": self.exhibit.shows,
            "scale": self.plan.bench.scale.name,
            "bench": self.plan.bench.name,
            "rule": RULE,
            "claims": [each.summary() for each in self.judged],
            "numbers": {
                label: {name: asdict(each) for name, each in numbers.items()} for label, numbers in self.numbers.items()
            },
            "measured": self.result.summary(),
        }

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        return {"reproduction": [each.as_row() for each in self.judged], **self.result.rows()}

    def draw(self) -> Figure:
        return self.exhibit.draw(self.found)


def _table(numbers: dict[str, dict[str, Spread]]) -> Table:
    """Return numbers beside answers as a table."""
    names = list(dict.fromkeys(name for each in numbers.values() for name in each))
    rows = [[label, *(_shown(each.get(name), name) for name in names)] for label, each in numbers.items()]
    return Table("Beside answers", ("method", *(described(name).title for name in names)), rows, left=1)


def _shown(values: Spread | None, name: str) -> str:
    return "–" if values is None else shown(values, described(name).scale, 3)


def below(setting: Setting, exhibit: Exhibit[Any], bench: Bench) -> Setting:
    """Return the setting with the folder of one exhibit on one bench."""
    return replace(setting, out=setting.out / exhibit.name / bench.name)
