"""Exhibits of lines and curves: with other penalties, samples, features and epochs, and slightly off their ends."""

from collections.abc import Callable
from typing import Any

from subspaces.experiments.studies.catalogue.claims import Claim, mean
from subspaces.experiments.studies.catalogue.compared import (
    STANDARD,
    Compared,
    Panel,
    Recipes,
    along,
    answer,
    at,
    together,
    two_networks,
)
from subspaces.experiments.studies.catalogue.scales import Bench, Role
from subspaces.experiments.studies.tables import Figure

MATCH = 0.002
"""How far below accuracies still match: 0.2 points."""
NEAR = 0.005
"""How far below accuracies still approach: half a point."""
EDGE = 0.1  # and its opposite: the two points towards the ends
BETAS = (0.0, 1.0, 2.0)
BOTH = ("line", "layerwise line")
OUTSIDE = -0.05  # and its opposite, 1.05
PICTURES: tuple[Role, ...] = ("small", "medium", "medium-deep")


def label(method: str, layerwise: bool = False, beta: float = 1.0) -> str:
    """Return what a line or curve is called among others."""
    return ("layerwise " if layerwise else "") + method + ("" if beta == 1 else f", β = {beta:g}")


def lines_and_curves(bench: Bench, beta: float = 1.0) -> Recipes:
    """Return lines and curves, with one alpha for the network and with one for each layer."""
    return {
        label(method, layerwise, beta): bench.recipe(method, beta=beta, layerwise=layerwise)
        for method in ("line", "curve")
        for layerwise in (False, True)
    }


def of_both(claim: Callable[[str], Claim[Panel]]) -> list[Claim[Panel]]:
    """Return what is claimed of lines and of curves."""
    return [claim(one) for one in ("line", "curve")]


def draw_with_two_networks(found: Panel) -> Figure:
    """Draw accuracy along lines and curves, and the level of two networks together."""
    from subspaces.experiments.studies import figures

    level = two_networks()
    return figures.along_with(found.comparison.groups, level.words, list(level.of(found).values()))


class Along(Compared):
    """How accurate the networks along lines and curves are."""

    name = "along"
    where = "Figure 4"
    shows = "accuracy of the networks along lines and curves"
    roles = PICTURES
    picture = "along"

    def recipes(self, bench: Bench) -> Recipes:
        return {STANDARD: bench.recipe(), **lines_and_curves(bench)}

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        standard = answer(STANDARD)
        above = [
            Claim(f"the midpoint of the {one} is above standard training", answer(one), standard)
            for one in lines_and_curves(bench)
        ]
        quarters = [
            Claim(
                f"the {one} at α = {alpha:g} matches standard training within {100 * MATCH:g} points",
                at(one, alpha),
                standard,
                margin=MATCH,
            )
            for one in ("line", "curve")
            for alpha in (0.25, 0.75)
        ]
        return [*above, *quarters]


class EnsemblesAlong(Compared):
    """How accurate two networks of a line or curve are together."""

    name = "ensembles-along"
    where = "Figure 5"
    shows = "accuracy of the ensembles of α and 1 − α along lines and curves"
    roles = PICTURES
    twins = True

    def recipes(self, bench: Bench) -> Recipes:
        return {STANDARD: bench.recipe(), **lines_and_curves(bench)}

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        def above(one: str) -> Claim[Panel]:
            return Claim(f"two points of the {one} are above one network", together(one, EDGE), answer(STANDARD))

        def near(one: str) -> Claim[Panel]:
            words = f"two points of the {one} approach two networks within {100 * NEAR:g} points"
            return Claim(words, together(one, EDGE), two_networks(), margin=NEAR)

        def less_together(one: str) -> Claim[Panel]:
            words = f"two points of the layerwise {one} are below those of the {one}"
            return Claim(words, together(one, EDGE), together(label(one, True), EDGE))

        def better_midpoint(one: str) -> Claim[Panel]:
            words = f"the midpoint of the layerwise {one} is above that of the {one}"
            return Claim(words, answer(label(one, True)), answer(one))

        return [claim for each in (above, near, less_together, better_midpoint) for claim in of_both(each)]

    def draw(self, found: Panel) -> Figure:
        return draw_with_two_networks(found)


class Betas(Compared):
    """What the strength of the penalty does along lines and curves."""

    name = "betas"
    where = "Figure 6"
    shows = "accuracy along lines and curves for β = 0, 1 and 2"
    roles = PICTURES
    picture = "betas"
    twins = True

    def recipes(self, bench: Bench) -> Recipes:
        families = [lines_and_curves(bench, beta) for beta in BETAS]
        return {STANDARD: bench.recipe(), **{name: one for each in families for name, one in each.items()}}

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        def more_diverse(one: str) -> Claim[Panel]:
            words = f"two points of the {one} with β = 1 are above those with β = 0"
            return Claim(words, together(one, EDGE), together(label(one, beta=0), EDGE))

        def no_better(one: str) -> Claim[Panel]:
            words = f"two points of the {one} with β = 0 stay below two networks"
            return Claim(words, two_networks(), together(label(one, beta=0), EDGE))

        def above(one: str) -> Claim[Panel]:
            words = f"the midpoint of the {one} with β = 2 is above standard training"
            return Claim(words, answer(label(one, beta=2)), answer(STANDARD))

        return [claim for each in (more_diverse, no_better, above) for claim in of_both(each)]


class Samples(Compared):
    """What several points for a batch, and features that are kept apart, do."""

    name = "samples"
    where = "Figure 13"
    shows = "accuracy along lines and curves with several samples, and with features kept apart"
    roles = ("small",)
    picture = "along"

    def recipes(self, bench: Bench) -> Recipes:
        found = {STANDARD: bench.recipe()}
        for method in ("line", "curve"):
            found[method] = bench.recipe(method)
            for samples in (2, 4):
                found[f"{method}, {samples} samples"] = bench.recipe(method, samples=samples)
            found[f"{method}, features apart"] = bench.recipe(method, samples=2, feature_similarity=1.0)
        return found

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        claims = []
        for method in ("line", "curve"):
            for more in ("2 samples", "4 samples", "features apart"):
                one = f"{method}, {more}"
                claims.append(
                    Claim(f"the {one}, is above the {method}, in the mean along it", along(one), along(method))
                )
            one = f"{method}, features apart"
            words = f"two points of the {one}, are above those of the {method}"
            claims.append(Claim(words, together(one, EDGE), together(method, EDGE)))
        return claims


class SwaLine(Compared):
    """The line between two checkpoints of SWA beside learned ones."""

    name = "swa-line"
    where = "Figure 18"
    shows = "accuracy along lines and curves, and along the line between two checkpoints of SWA"
    roles = PICTURES
    twins = True

    def recipes(self, bench: Bench) -> Recipes:
        return {STANDARD: bench.recipe(), **lines_and_curves(bench), "swa": bench.recipe("swa-cyclic", vertices=2)}

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        def above(one: str) -> Claim[Panel]:
            words = f"two points of the {one} are above the two checkpoints of SWA"
            return Claim(words, together(one, EDGE), together("swa", EDGE))

        words = "the midpoint of the layerwise line matches the average of the checkpoints within "
        matches = Claim(f"{words}{100 * MATCH:g} points", answer("layerwise line"), answer("swa"), margin=MATCH)
        return [*of_both(above), matches]

    def draw(self, found: Panel) -> Figure:
        return draw_with_two_networks(found)


class Epochs(Compared):
    """What longer training gives to a line's midpoint."""

    name = "epochs"
    where = "Figure 10"
    shows = "accuracy and ECE of the midpoint of a line against the epochs"
    roles = ("large", "large-wide")

    def recipes(self, bench: Bench) -> Recipes:
        found = {}
        for epochs in bench.scale.epochs:
            found[after(STANDARD, epochs)] = bench.recipe(epochs=epochs)
            found[after("line", epochs)] = bench.recipe("line", epochs=epochs)
            found[after("layerwise line", epochs)] = bench.recipe("line", epochs=epochs, layerwise=True)
        return found

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        longest = bench.scale.epochs[-1]
        accurate = [
            Claim(
                f"after {longest} epochs the midpoint of the {one} is above standard training",
                answer(after(one, longest)),
                answer(after(STANDARD, longest)),
            )
            for one in BOTH
        ]
        calibrated = [
            Claim(
                f"after {epochs} epochs the midpoint of the {one} is better calibrated than standard training",
                answer(after(STANDARD, epochs), metric="ece"),
                answer(after(one, epochs), metric="ece"),
                "ece",
            )
            for epochs in bench.scale.epochs
            for one in BOTH
        ]
        return [*accurate, *calibrated]

    def draw(self, found: Panel) -> Figure:
        from subspaces.experiments.studies import figures

        lengths = found.bench.scale.epochs
        series = {
            one: ([float(n) for n in lengths], [found.entry(after(one, n), "midpoint") for n in lengths])
            for one in (STANDARD, *BOTH)
        }
        comparison = found.comparison
        return figures.over(comparison.heading(), series, len(comparison.seeds), "epochs")


def after(one: str, epochs: int) -> str:
    """Return what a training of so many epochs is called."""
    return f"{one}, {epochs} epochs"


class OffTheLine(Compared):
    """Whether networks that a line connects can be as good together as two independent ones."""

    name = "off-the-line"
    where = "Figure 12, right"
    shows = "two networks slightly off the ends of a line, α = −0.05 and 1.05, beside two independent ones"
    roles = ("large-wide",)
    twins = True

    def recipes(self, bench: Bench) -> Recipes:
        short, *_, longest = bench.scale.epochs
        return {STANDARD: bench.recipe(epochs=short), "line": bench.recipe("line", epochs=longest)}

    def evaluation(self, bench: Bench) -> dict[str, Any]:
        return {"grid": (OUTSIDE, *bench.scale.grid), "triangle": 0}

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        alone = mean("line at −0.05 and 1.05", [at("line", OUTSIDE), at("line", 1 - OUTSIDE)])
        words = f"alone, networks off the ends are at most {100 * MATCH:g} points above standard training"
        return [
            Claim(words, answer(STANDARD), alone, margin=MATCH),
            Claim("two networks off the ends are above two others", together("line", OUTSIDE), two_networks()),
        ]

    def draw(self, found: Panel) -> Figure:
        return draw_with_two_networks(found)
