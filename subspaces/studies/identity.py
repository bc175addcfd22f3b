"""The closed form of Integral, looked at in every trained line, see `subspaces.methods.integral`.

The mean of f over steps of epsilon is g(1) but for rounding; the mean over all of [0, 1] differs from it as the finite
difference does.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from subspaces import storage
from subspaces.data import Split
from subspaces.evaluation.classification import DISTANCES, Classes
from subspaces.evaluation.display import bars, counted, heeding
from subspaces.evaluation.metrics import METRICS, tally
from subspaces.evaluation.run_subject import RunSubject, run_predictor, run_subjects, share
from subspaces.methods import integral
from subspaces.studies.setting import Setting
from subspaces.training import seals
from subspaces.training.config import Precision
from subspaces.training.runs import Run
from subspaces.training.signals import stop_on_signals

FILE = "integral.json"
IMAGES, BATCHES = 1000, 50  # of the check: test images, and batches for the batch-norm statistics of a point
PRECISION: Precision = "float32"  # in which f is trained too, whatever a network computes in
TOLERANCE = 1e-5
"""Of the mean over steps of epsilon, relative to the largest output: the sum of 2/epsilon outputs in float32, each
rounded by 6e-8 and both multiplied and divided by epsilon, is off by some 1e-6 for an epsilon of 0.1."""


@dataclass(frozen=True)
class Identity:
    """How far the integral of f is from g(1) in one trained line, on some test images."""

    run: str
    seed: int
    label_noise: float
    epsilon: float
    images: int
    nodes: int
    accuracy: float  # of g(1)
    rounding: float  # largest |mean over steps - g(1)|, relative to the largest |g(1)|
    accuracy_mean: float  # of the mean over all of [0, 1]
    disagreement: float  # between that and g(1): the share of images, and the total variation of probabilities
    total_variation: float

    @property
    def holds(self) -> bool:
        """Whether the sum over steps is g(1) within the tolerance."""
        return self.rounding <= TOLERANCE

    def cells(self) -> list[str]:
        """Return the row of a table."""
        return [
            f"{100 * self.label_noise:g}",
            str(self.seed),
            f"{self.epsilon:g}",
            f"{self.rounding:.1e}" + ("" if self.holds else " !"),
            f"{100 * self.accuracy:.2f}",
            f"{100 * self.accuracy_mean:.2f}",
            f"{100 * self.disagreement:.2f}",
            f"{self.total_variation:.4f}",
        ]


def measure_identities(runs: Sequence[Run], setting: Setting) -> list[Identity]:
    """Compare the integral of f with g(1) in every run, unless that is there already."""
    bench = run_subjects(setting.data, setting.measured_on.resolved())
    with stop_on_signals() as stop, bars(setting.show == "bar") as shown:
        tick = counted(partial(heeding, stop, shown), "integrals of f", 0, len(runs))

        def identity(one: RunSubject) -> Identity:
            found = _read_or_measure(one)
            tick(1)
            return found

        return share([bench(run) for run in runs], identity, stop)


def _read_or_measure(bench: RunSubject) -> Identity:
    path, remedy = bench.run.folder / FILE, "remove it, and it is measured again"
    key = {"family": bench.checksum, "batches": BATCHES, "precision": PRECISION}
    if seals.there(path, remedy):
        stored = seals.read_json(path, bench.recipe.key, remedy).content
        try:
            if stored["key"] == key:
                return Identity(**stored["identity"])
        except (KeyError, TypeError) as error:
            raise seals.damaged(path, error, remedy) from None
    made = measure_identity(bench)
    seals.write_json(path, {"key": key, "identity": dataclasses.asdict(made)}, bench.recipe.key)
    return made


def measure_identity(bench: RunSubject) -> Identity:
    """Integrate f over the line of a run: over steps of epsilon, and by the midpoint rule with two nodes in each."""
    recipe = bench.recipe
    labels, g = _networks(bench)
    end = g(integral.END)
    nodes = integral.steps(recipe.epsilon)
    steps = integral.integral(g, recipe.epsilon, nodes)
    mean = integral.integral(g, recipe.epsilon, integral.middles(2 * len(nodes)))
    p, q = (Classes(outputs.log_softmax(1)) for outputs in (end, mean))
    apart = tally(DISTANCES, [(p, q)])
    return Identity(
        run=bench.run.folder.name,
        seed=recipe.seed,
        label_noise=recipe.label_noise,
        epsilon=recipe.epsilon,
        images=len(labels),
        nodes=2 * len(nodes),
        accuracy=METRICS["accuracy"](p, labels),
        rounding=float((steps - end).abs().max() / end.abs().max()),
        accuracy_mean=METRICS["accuracy"](q, labels),
        disagreement=apart["disagreement"],
        total_variation=apart["tv"],
    )


def _networks(bench: RunSubject) -> tuple[Tensor, Callable[[float], Tensor]]:
    """Return the labels of some test images, and the outputs g(x, P(alpha)) on them with statistics of their own."""
    test = bench.images_of.test
    if isinstance(test, Split):
        test = test.select(torch.arange(min(IMAGES, len(test))))
    dataset = replace(bench.images_of, test=test)
    bench.run.check_family(bench.run.trained_file)
    line = storage.load(bench.run.trained_file, bench.family.midpoint()).to(bench.execution.device)
    execution = replace(bench.execution, precision=PRECISION)
    predictor = run_predictor(bench, line.midpoint(), dataset, execution, ["test"], BATCHES)

    def g(alpha: float) -> Tensor:
        with torch.no_grad():
            return predictor.whole(line.theta(line.coefficients(alpha, outside=True)))["test"][0]

    return test.labels.to(predictor.device), g
