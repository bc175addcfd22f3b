"""The numbers that figures and pages show: label, unit, which direction is better, and what they mean."""

from dataclasses import dataclass

from subspaces.evaluation.metrics import metric


@dataclass(frozen=True)
class Measure:
    """A number in words; `higher` says whether more is better, None where neither is."""

    name: str
    label: str
    percent: bool = False
    meaning: str = ""
    higher: bool | None = None

    @property
    def scale(self) -> float:
        """What a number is multiplied with where it is shown."""
        return 100.0 if self.percent else 1.0

    @property
    def axis(self) -> str:
        """The label with its unit."""
        return self.label + (" (%)" if self.percent else "")

    def digits(self, images: int) -> int:
        """Return the decimal places that a split of so many images can tell apart."""
        return (1 if images < 5000 else 2) if self.percent else 3


def _metric(name: str, label: str, percent: bool, meaning: str) -> Measure:
    return Measure(name, label, percent, meaning, not metric(name).lower_is_better)


_ALL = (
    _metric("accuracy", "accuracy", True, "the share of images whose most probable class is right"),
    _metric(
        "ece",
        "ECE",
        True,
        "expected calibration error: how far the confidence of an answer is from how often such answers are right, "
        "on average over 20 bins of equal width",
    ),
    _metric(
        "nll", "NLL", False, "negative log-likelihood: −log of the probability given to the right class, on average"
    ),
    _metric(
        "brier", "Brier score", False, "the squared distance of the probabilities from the right answer, on average"
    ),
    _metric(
        "adaptive_ece",
        "adaptive ECE",
        True,
        "ECE with 20 bins of equally many images, so that the many confident answers are not all in one bin",
    ),
    _metric(
        "aurc",
        "AURC",
        True,
        "area under the risk–coverage curve: the error among the most confident answers, on average over how many of "
        "them are kept; low if errors come with low confidence",
    ),
    Measure("loss", "training loss"),
    Measure("learning_rate", "learning rate"),
    Measure("train_accuracy", "training accuracy", True),
    Measure("validation_accuracy", "validation accuracy", True),
    Measure("test_accuracy", "test accuracy", True),
    Measure("l2", "L2 distance"),
    Measure("cos2", "cos²"),
    Measure("tv", "total variation"),
    Measure("disagreement", "disagreement", True),
    Measure("feature_cosine", "cosine of features"),
)
MEASURES = {one.name: one for one in _ALL}
METRICS = tuple(one.name for one in _ALL if one.higher is not None)
"""Those of a network's answers, in the order in which tables have them."""


def measure(name: str) -> Measure:
    """Return a number in words; one that is not known here goes by its name."""
    return MEASURES.get(name, Measure(name, name.replace("_", " ")))
