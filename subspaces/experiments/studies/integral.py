"""The Integral study: a line whose ensemble of all networks is one network, under label noise, and whether it is.

The closed form is looked at in every trained line, see `subspaces.experiments.methods.integral`: the mean of f over
steps of epsilon is g(1) but for rounding; the mean over all of [0, 1] differs from it as the finite difference does.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from subspaces.core import storage
from subspaces.errors import ArgumentError
from subspaces.evaluation.classification import DISTANCES, Classes
from subspaces.evaluation.display import bars, counted
from subspaces.evaluation.metrics import METRICS, tally
from subspaces.experiments import locks
from subspaces.experiments.data import Split
from subspaces.experiments.evaluating.run_subject import RunSubject, run_subjects, share
from subspaces.experiments.kept import Kept
from subspaces.experiments.methods import integral
from subspaces.experiments.studies import noise, tables
from subspaces.experiments.studies.noise import LEVELS, QUICK, NoiseStudy, Plan, columns
from subspaces.experiments.studies.setting import Folder, OneRecipe, Setting, train_missing
from subspaces.experiments.studies.tables import Figure, Result, Table
from subspaces.experiments.training.execution import Precision
from subspaces.experiments.training.runs import Run
from subspaces.experiments.training.signals import stop_on_signals

RECIPES = ("mnist-standard", "mnist-line", "mnist-integral")
RATE = 0.02
"""The learning rate of all methods: a difference over epsilon has a gradient about 1/epsilon as large as a network's,
and with the usual 0.1 the training of LeNet breaks down."""
SCHEMA = 1
CHECKED = ("noise %", "seed", "ε", "rounding", "accuracy % of g(1)", "of the mean of f", "disagree %", "TV")
FILE = "measured.json"
IMAGES, BATCHES = 1000, 50  # of the check: test images, and batches for the batch-norm statistics of a point
PRECISION: Precision = "float32"  # in which f is trained too, whatever a network computes in
TOLERANCE = 1e-5
"""Of the mean over steps of epsilon, relative to the largest output: the sum of 2/epsilon outputs in float32, each
rounded by 6e-8 and both multiplied and divided by epsilon, is off by some 1e-6 for an epsilon of 0.1."""


def study_integral(
    recipe: OneRecipe | Sequence[OneRecipe] = RECIPES,
    *,
    levels: Sequence[float] = LEVELS,
    out: Folder = "integral",
    **settings: Any,
) -> "IntegralStudy":
    """Train and evaluate what is missing of Integral and what it is compared with; write a table and a figure.

    Args:
        recipe: the methods, one of them integral.
        levels: the fractions of training labels that are drawn at random.
        out: the folder for the tables and the figure.
        settings: seeds, data, runs, show, tensorboard and changes, as in `compare`; the learning rate of all methods is
            0.02 unless it is changed.

    Example:
        >>> ss.studies.study_integral(levels=[0, 0.4], seeds=[0, 1], data="data")
    """
    return run(plan(recipe, Setting.of(out=out, **settings), levels))


def plan(recipe: OneRecipe | Sequence[OneRecipe], setting: Setting, levels: Sequence[float]) -> Plan:
    """Check everything and return what is to be done; nothing is."""
    changes = {"learning_rate": RATE, **setting.changes}
    found = noise.plan(recipe, replace(setting, ensembles=(), changes=changes), levels, {}, "accuracy")
    lines = [one for one in found.recipes if one.method == "integral"]
    if not lines:
        raise ArgumentError("no recipe has the method integral: expected one, such as mnist-integral")
    for one in lines:
        integral.steps(one.epsilon)
    return found


def run(plan: Plan) -> "IntegralStudy":
    """Train, measure and write what is missing."""
    with locks.made(plan.setting.out):
        return measure(plan, train_missing(plan.recipes, plan.setting, evaluation=QUICK)).write(plan.setting.out)


def measure(plan: Plan, runs: Sequence[Run]) -> "IntegralStudy":
    """Measure what is missing, and return all of it."""
    found = noise.measure(plan, runs)
    lines = [run for run in runs if run.recipe.method == "integral"]
    return IntegralStudy(found, measure_identities(lines, plan.setting))


# The table


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


@dataclass(frozen=True)
class IntegralStudy(Result):
    """Methods over levels of label noise, and the closed form of every Integral run."""

    name: ClassVar[str] = "integral"
    study: NoiseStudy
    identities: list[Identity]

    def tables(self) -> list[Table]:
        # what was chosen is left out: nothing was
        heads, *rows = ([*row[:3], *row[4:-2]] for row in (columns(), *map(self.study.cells, self.study.lines)))
        closed = Table("The closed form in each line", CHECKED, [one.cells() for one in self.identities], left=1)
        return [Table(self.study.heading(f"Integral, {self.epsilons()}"), heads, rows, left=3), closed]

    def summary(self) -> dict[str, Any]:
        return {
            "schema": SCHEMA,
            "tolerance": TOLERANCE,
            "environments": tables.environments(self.study.runs),
            "identities": [{**asdict(one), "holds": one.holds} for one in self.identities],
            "study": self.study.summary(),
        }

    def rows(self) -> dict[str, list[dict[str, Any]]]:
        return {"integral": self.study.rows()["noise"], "identity": [asdict(one) for one in self.identities]}

    def draw(self) -> Figure:
        return self.study.draw()

    def epsilons(self) -> str:
        """Return every ε that there is."""
        return f"ε = {', '.join(f'{value:g}' for value in sorted({one.epsilon for one in self.identities}))}"

    def notes(self) -> list[str]:
        held, images = sum(one.holds for one in self.identities), max(one.images for one in self.identities)
        recipe = self.study.comparisons[0].recipe
        return [
            *self.study.notes(),
            f"All methods: {recipe.epochs} epochs, learning rate {recipe.learning_rate:g}, batches of {recipe.batch}; "
            "a step of integral is three network-steps, of the others one.",
            f"The closed form, {self.epsilons()}: the sum of ε f over the 1/ε steps of ε telescopes to g(1) for any "
            "network g, trained or not, so it checks the computation and not the training. It is g(1) within "
            f"{TOLERANCE:g} of the largest output in {held} of {len(self.identities)} runs (rounding in float32).",
            "What tells about a trained line is the mean of f over all of [0, 1] (midpoint rule, 2/ε nodes), which "
            "differs from g(1) by ε/2 (g'(1) − g'(0)) + O(ε²): its accuracy, how often it disagrees with g(1), and the "
            f"total variation (TV) between the two, on the first {images:,} test images.",
        ]


# The closed form


def measure_identities(runs: Sequence[Run], setting: Setting) -> list[Identity]:
    """Compare the integral of f with g(1) in every run, unless that is there already."""
    kept, subject = Kept(setting.out / FILE), run_subjects(setting.data, setting.measured_on.resolved())
    with stop_on_signals() as stop, bars(setting.show == "bar", stop.raise_if_stopped) as shown:
        tick = counted(shown, "integrals of f", 0, len(runs))

        def identity(one: RunSubject) -> Identity:
            key = {"family": one.checksum, "batches": BATCHES, "precision": PRECISION}
            found = kept.find(key)
            if found is None:
                found = asdict(measure_identity(one))
                kept.add(key, found)
            tick(1)
            return Identity(**found)

        return share([subject(run) for run in runs], identity, stop)


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
    trained = RunSubject(bench.run, lambda: dataset, replace(bench.execution, precision=PRECISION), trust=True)
    trained.family = line
    predictor = trained.predictor(["test"], BATCHES)

    def g(alpha: float) -> Tensor:
        return predictor.whole(trained.weights(alpha))["test"]

    return test.labels.to(predictor.device), g
