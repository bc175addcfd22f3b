"""Exhibits that are studies of their own: label noise, Integral, and networks that share their first epochs."""

from dataclasses import replace
from typing import Any

from subspaces.experiments.studies import instability, integral, noise
from subspaces.experiments.studies.catalogue.claims import BySeed, Claim, Quantity, mean
from subspaces.experiments.studies.catalogue.exhibit import Exhibit, Plan
from subspaces.experiments.studies.catalogue.lines import NEAR
from subspaces.experiments.studies.catalogue.scales import Bench
from subspaces.experiments.studies.instability import InstabilityStudy
from subspaces.experiments.studies.integral import IntegralStudy
from subspaces.experiments.studies.mixtures import MIXTURES, WORDS, Kind
from subspaces.experiments.studies.noise import QUICK, NoiseStudy, methods_of
from subspaces.experiments.studies.setting import Setting, train_missing
from subspaces.experiments.studies.tables import Result
from subspaces.experiments.training.recipe import Recipe

SMOOTHING = 0.1  # beside a simplex


def under(method: str, levels: tuple[float, ...], metric: str = "accuracy") -> Quantity[NoiseStudy]:
    """Return a metric of a method as one network, in the mean over levels of label noise."""

    def at(level: float) -> Quantity[NoiseStudy]:
        def of(found: NoiseStudy) -> BySeed:
            lines = [line for line in found.lines if (line.level, line.method) == (level, method)]
            chosen = next(line.chosen for line in lines if line.chosen.networks == 1)
            return chosen.by_seed(metric)

        return Quantity(method, of)

    return mean(method, [at(level) for level in levels])


def called(recipe: Recipe) -> str:
    """Return what the study calls the method of a recipe."""
    return methods_of([recipe], {})[0].label


class UnderNoise(Exhibit[NoiseStudy]):
    """Methods over levels of label noise."""

    tried = False
    """Whether settings of standard training are tried too."""

    def recipes(self, bench: Bench) -> dict[str, Recipe]:
        """Return what is trained at each level, by what claims call it."""
        raise NotImplementedError

    def plan(self, bench: Bench, setting: Setting) -> Plan:
        changes = {**setting.changes, "validation": bench.scale.validation}
        asked = replace(setting, ensembles=(), changes=changes)
        lists = bench.scale.lists if self.tried else {}
        recipes = list(self.recipes(bench).values())
        return Plan(self, bench, noise.plan(recipes, asked, bench.scale.levels, lists, "accuracy"))

    def measure(self, plan: Plan) -> NoiseStudy:
        return noise.measure(plan.study, train_missing(plan.recipes, plan.setting))

    def result(self, found: NoiseStudy) -> Result:
        return found

    def evaluation(self, bench: Bench) -> dict[str, Any]:
        return QUICK

    def above(self, bench: Bench, ours: str, others: dict[str, str]) -> list[Claim[NoiseStudy]]:
        """Return that a method is above others, given by what they are called in words and in the study."""
        noisy = tuple(level for level in bench.scale.levels if level)
        method = called(self.recipes(bench)[ours])
        return [
            Claim(
                f"under label noise the midpoint of the {ours} is above {words}",
                under(method, noisy),
                under(other, noisy),
            )
            for words, other in others.items()
        ]

    def calibrated(self, bench: Bench, ours: str) -> Claim[NoiseStudy]:
        """Return that a method is better calibrated than standard training."""
        known, every = self.recipes(bench), bench.scale.levels
        standard, method = (under(called(known[each]), every, "ece") for each in ("standard", ours))
        return Claim(f"the midpoint of the {ours} is better calibrated than standard training", standard, method, "ece")


class LabelNoise(UnderNoise):
    """How robust the midpoint of a simplex is to label noise, and how well calibrated."""

    name = "label-noise"
    where = "Figure 8"
    shows = "accuracy and ECE over label noise, of simplexes and what they are compared with"
    roles = ("small",)
    tried = True

    def recipes(self, bench: Bench) -> dict[str, Recipe]:
        m = bench.scale.members
        return {
            "standard": bench.recipe(),
            "simplex": bench.recipe("simplex", vertices=m),
            "layerwise simplex": bench.recipe("simplex", vertices=m, layerwise=True),
            "smoothed simplex": bench.recipe("simplex", vertices=m, label_smoothing=SMOOTHING),
            "cyclic SWA": bench.recipe("swa-cyclic", vertices=m),
            "constant SWA": bench.recipe("swa-constant", vertices=m),
            "early stopping": bench.recipe("early-stopping", validation=bench.scale.validation),
        }

    def claims(self, bench: Bench) -> list[Claim[NoiseStudy]]:
        known = self.recipes(bench)
        names = {
            "standard": "standard training",
            **{each: each for each in ("cyclic SWA", "constant SWA", "early stopping")},
        }
        others = {words: called(known[each]) for each, words in names.items()}
        tried = {f"{name.replace('_', ' ')} at its best": name.replace("_", " ") for name in bench.scale.lists}
        claims = self.above(bench, "simplex", others) + self.above(bench, "layerwise simplex", {**others, **tried})
        return [*claims, self.calibrated(bench, "simplex"), self.calibrated(bench, "layerwise simplex")]


class LargeNoise(UnderNoise):
    """How robust the midpoint of a line is to label noise on large data."""

    name = "large-noise"
    where = "Figure 12, left"
    shows = "accuracy over label noise, of the midpoint of a line, standard training and early stopping"
    roles = ("large-wide",)

    def recipes(self, bench: Bench) -> dict[str, Recipe]:
        stopped = bench.recipe("early-stopping", validation=bench.scale.validation)
        return {"standard": bench.recipe(), "line": bench.recipe("line"), "early stopping": stopped}

    def claims(self, bench: Bench) -> list[Claim[NoiseStudy]]:
        known = self.recipes(bench)
        others = {"standard training": called(known["standard"]), "early stopping": called(known["early stopping"])}
        return self.above(bench, "line", others)


class Integral(Exhibit[IntegralStudy]):
    """How robust the closed-form ensemble of a line is to label noise."""

    name = "integral"
    where = "Figure 14"
    shows = "accuracy over label noise, of the closed-form ensemble of a line"
    roles = ("grey",)

    def recipes(self, bench: Bench) -> list[Recipe]:
        """Return what is trained at each level."""
        return [bench.recipe(method) for method in ("standard", "line", "integral")]

    def plan(self, bench: Bench, setting: Setting) -> Plan:
        changes = {**setting.changes, "learning_rate": bench.scale.integral_rate}
        study = integral.plan(self.recipes(bench), replace(setting, changes=changes), bench.scale.levels)
        return Plan(self, bench, study)

    def measure(self, plan: Plan) -> IntegralStudy:
        return integral.measure(plan.study, train_missing(plan.recipes, plan.setting))

    def result(self, found: IntegralStudy) -> Result:
        return found

    def evaluation(self, bench: Bench) -> dict[str, Any]:
        return QUICK

    def claims(self, bench: Bench) -> list[Claim[IntegralStudy]]:
        clean, *noisy = bench.scale.levels

        def of(method: str, levels: tuple[float, ...]) -> Quantity[IntegralStudy]:
            inner = under(method, levels)
            return Quantity(method, lambda found: inner.of(found.study))

        words = f"without label noise Integral is within {100 * NEAR:g} points of standard training"
        matching = Claim(words, of("integral", (clean,)), of("standard", (clean,)), margin=NEAR)
        above = [
            Claim(f"under label noise Integral is above {text}", of("integral", tuple(noisy)), of(other, tuple(noisy)))
            for other, text in (("standard", "standard training"), ("line", "the midpoint of a line"))
        ]
        return [matching, *above]


class Instability(Exhibit[InstabilityStudy]):
    """When networks that share their first epochs can be averaged."""

    name = "instability"
    where = "Figure 21"
    shows = "averages, ensembles and random mixtures of networks that share their first epochs"
    roles = ("small",)

    def plan(self, bench: Bench, setting: Setting) -> Plan:
        scale = bench.scale
        return Plan(self, bench, instability.plan(bench.recipe(), setting, scale.shared, scale.models, scale.draws))

    def measure(self, plan: Plan) -> InstabilityStudy:
        return instability.measure(plan.study, train_missing(plan.recipes, plan.setting))

    def result(self, found: InstabilityStudy) -> Result:
        return found

    def evaluation(self, bench: Bench) -> dict[str, Any]:
        return QUICK

    def networks(self, plan: Plan) -> float:
        study: instability.Plan = plan.study
        of_trunk = len(study.models) * (2 + len(MIXTURES) * study.draws)  # beside the branches themselves
        return of_trunk * len(study.seeds) * len(study.shared)

    def claims(self, bench: Bench) -> list[Claim[InstabilityStudy]]:
        shared = sorted(instability.shared_epochs(bench.base, bench.scale.shared))
        half = next(k for k in shared if 2 * k >= bench.base.epochs)
        few = next(k for k in shared if k)
        pair, *_ = bench.scale.models
        claims: list[Claim[InstabilityStudy]] = []
        for m in bench.scale.models:
            alone, one = made(m, 0, "branch"), "one network"
            fails = f"without shared epochs the average of {m} networks has less than half the accuracy of {one}"
            better = f"without shared epochs {m} networks are better together than {one}"
            gains = f"after {half} shared epochs the average of {m} networks is above {one}"
            claims += [
                Claim(fails, alone, made(m, 0, "average"), factor=2.0),
                Claim(better, made(m, 0, "ensemble"), alone),
                Claim(gains, made(m, half, "average"), made(m, half, "branch")),
            ]
        matching: list[tuple[int, Kind]] = [
            (few, "average"),
            (half, "global"),
            (half, "layerwise"),
            (half, "per-weight"),
        ]
        for k, kind in matching:
            words = f"with {k} of {bench.base.epochs} epochs shared, the {WORDS[kind]} of {pair} networks matches one"
            matches = f"{words} within {100 * NEAR:g} points"
            claims.append(Claim(matches, made(pair, k, kind), made(pair, k, "branch"), margin=NEAR))
        return claims


def made(models: int, shared: int, kind: Kind) -> Quantity[InstabilityStudy]:
    """Return the accuracy of what is made of so many networks that share so many epochs, in the mean over draws."""

    def of(found: InstabilityStudy) -> BySeed:
        by_seed: BySeed = found.cells[models, shared, kind].groupby("seed")["accuracy"].mean().to_dict()
        return by_seed

    return Quantity(f"{WORDS[kind]} of {models}, {shared} shared epochs", of)
