"""Exhibits of lines and curves: accuracy and ensembles along them, strengths of the penalty, samples and features."""

from subspaces.studies.catalogue.claims import Claim
from subspaces.studies.catalogue.compared import (
    STANDARD,
    Compared,
    Panel,
    Recipes,
    answer,
    at,
    together,
    two_networks,
)
from subspaces.studies.catalogue.exhibit import EXHIBITS
from subspaces.studies.catalogue.scales import Bench, Role
from subspaces.studies.tables import Figure

MATCH = 0.002
"""How far below accuracies still match: 0.2 points."""
NEAR = 0.005
"""How far below accuracies still approach: half a point."""
EDGE = 0.1  # and its opposite: the two points towards the ends
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


@EXHIBITS.add
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
        return [
            *(
                Claim(f"the midpoint of the {one} is above standard training", answer(one), standard)
                for one in lines_and_curves(bench)
            ),
            *(
                Claim(
                    f"a quarter from an end, the {one} matches standard training within {100 * MATCH:g} points",
                    at(one, alpha),
                    standard,
                    margin=MATCH,
                )
                for one in ("line", "curve")
                for alpha in (0.25, 0.75)
            ),
        ]


@EXHIBITS.add
class EnsemblesAlong(Compared):
    """How accurate two networks of a line or curve are together."""

    name = "ensembles-along"
    where = "Figure 5"
    shows = "accuracy of the ensembles of α and 1 − α along lines and curves"
    roles = PICTURES
    picture = "along"
    twins = True

    def recipes(self, bench: Bench) -> Recipes:
        return {STANDARD: bench.recipe(), **lines_and_curves(bench)}

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        plain = {one: together(one, EDGE) for one in ("line", "curve")}
        return [
            *(
                Claim(f"two points of the {one} are above one network", pair, answer(STANDARD))
                for one, pair in plain.items()
            ),
            *(
                Claim(
                    f"two points of the {one} approach two networks within {100 * NEAR:g} points",
                    pair,
                    two_networks(),
                    margin=NEAR,
                )
                for one, pair in plain.items()
            ),
            *(
                Claim(
                    f"two points of the layerwise {one} are below those of the {one}",
                    pair,
                    together(label(one, True), EDGE),
                )
                for one, pair in plain.items()
            ),
            *(
                Claim(
                    f"the midpoint of the layerwise {one} is above that of the {one}",
                    answer(label(one, True)),
                    answer(one),
                )
                for one in plain
            ),
        ]

    def draw(self, found: Panel) -> Figure:
        from subspaces.studies.catalogue import pictures

        level = two_networks()
        return pictures.along_with(found.comparison.groups, level.words, list(level.of(found).values()))
