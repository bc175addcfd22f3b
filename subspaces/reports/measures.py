"""The numbers that figures and pages show, in words: those of an evaluation, and the columns of a log."""

from collections.abc import Sequence

from subspaces.evaluation import classification, metrics, regression
from subspaces.evaluation.record import Description, Record
from subspaces.reports.reading import Group

LOGGED = {
    each.name: each
    for each in (
        Description("loss", "training loss", "of the batches on the way"),
        Description("learning_rate", "learning rate", "of an epoch"),
        Description("train_accuracy", "training accuracy", "on the way, with the labels trained on", False, True),
        Description("validation_accuracy", "validation accuracy", "of the midpoint", False, True),
        Description("test_accuracy", "test accuracy", "of the midpoint", False, True),
        Description("l2", "L2 distance", "between vertices"),
        Description("cos2", "cos²", "of the angle between vertices"),
    )
}
DISTANCES = {each.name: each for each in (*classification.DISTANCES, *regression.DISTANCES)}


def measure(name: str, groups: Sequence[Group] = ()) -> Description:
    """Return a number in words: as the evaluations tell it, as it is defined, or by its name."""
    told = (each for group in groups for run in group.runs for each in run.record.metrics)
    known = next((each for each in told if each.name == name), None)
    found = known or metrics.METRICS.get(name) or DISTANCES.get(name) or LOGGED.get(name)
    return found or Description(name, name.replace("_", " "), "")


def usual(groups: Sequence[Group]) -> list[Description]:
    """Return the two metrics that are told first: accuracy and calibration of classifiers, else the first two."""
    known = shared([run.record for group in groups for run in group.runs])
    named = [each for each in known if each.name in ("accuracy", "ece")]
    return named if len(named) == 2 else known[:2]


def shared(records: Sequence[Record]) -> list[Description]:
    """Return the metrics that were measured of all; what a network does not predict has none."""

    def measured(each: Description, record: Record) -> bool:
        return each in record.metrics and all(each.name in row.metrics for row in record.rows[:1])

    return [each for each in records[0].metrics if all(measured(each, record) for record in records)]


def places(described: Description, count: int) -> int:
    """Return the decimal places that a split of so many examples can tell apart."""
    return (1 if count < 5000 else 2) if described.percent else 3
