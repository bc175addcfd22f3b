"""Exhibits of lines that are trained for longer: what their midpoints gain, and networks slightly off their ends."""

from typing import Any

from subspaces.experiments.studies.catalogue.claims import Claim, mean
from subspaces.experiments.studies.catalogue.compared import (
    STANDARD,
    Compared,
    Panel,
    Recipes,
    answer,
    at,
    together,
    two_networks,
)
from subspaces.experiments.studies.catalogue.lines import MATCH, draw_with_two_networks
from subspaces.experiments.studies.catalogue.scales import Bench
from subspaces.experiments.studies.tables import Figure

LINES = ("line", "layerwise line")
OUTSIDE = -0.05  # and its opposite, 1.05


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
            for one in LINES
        ]
        calibrated = [
            Claim(
                f"after {epochs} epochs the midpoint of the {one} is better calibrated than standard training",
                answer(after(STANDARD, epochs), metric="ece"),
                answer(after(one, epochs), metric="ece"),
                "ece",
            )
            for epochs in bench.scale.epochs
            for one in LINES
        ]
        return [*accurate, *calibrated]

    def draw(self, found: Panel) -> Figure:
        from subspaces.experiments.studies import figures

        lengths = found.bench.scale.epochs
        series = {
            one: ([float(n) for n in lengths], [found.entry(after(one, n), "midpoint") for n in lengths])
            for one in (STANDARD, *LINES)
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
