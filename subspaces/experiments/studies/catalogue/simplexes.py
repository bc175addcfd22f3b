"""Exhibits of simplexes: their midpoint against the number of vertices, and ensembles of several of their networks."""

from subspaces.experiments.studies.catalogue.claims import Claim
from subspaces.experiments.studies.catalogue.compared import STANDARD, Compared, Panel, Recipes, answer, together
from subspaces.experiments.studies.catalogue.lines import EDGE, MATCH, PICTURES
from subspaces.experiments.studies.catalogue.scales import Bench
from subspaces.experiments.studies.tables import Figure

SWA = {"swa-cyclic": "cyclic SWA", "swa-constant": "constant SWA"}


class SimplexMidpoint(Compared):
    """How accurate the midpoint of a simplex is against the number of vertices, beside SWA."""

    name = "simplex-midpoint"
    where = "Figure 7"
    shows = "accuracy of the midpoint of a simplex against the number of vertices, with SWA at as many checkpoints"
    roles = PICTURES
    picture = "vertices"

    def recipes(self, bench: Bench) -> Recipes:
        found = {STANDARD: bench.recipe()}
        for m in bench.scale.vertices:
            found[f"simplex of {m}"] = bench.recipe("simplex", vertices=m)
            found[f"layerwise simplex of {m}"] = bench.recipe("simplex", vertices=m, layerwise=True)
            for method, words in SWA.items():
                found[f"{words} of {m}"] = bench.recipe(method, vertices=m)
        return found

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        above = [
            Claim(f"the midpoint of the {one} is above standard training", answer(one), answer(STANDARD))
            for m in bench.scale.vertices
            for one in (f"simplex of {m}", f"layerwise simplex of {m}")
        ]
        matches = [
            Claim(
                f"the midpoint of the {one} matches {swa} of {m} within {100 * MATCH:g} points",
                answer(one),
                answer(f"{swa} of {m}"),
                margin=MATCH,
            )
            for m in bench.scale.vertices
            for one in (f"layerwise simplex of {m}",)
            for swa in SWA.values()
        ]
        return [*above, *matches]


class SixModels(Compared):
    """How accurate several networks are together that one training gives."""

    name = "six-models"
    where = "Figure 11"
    shows = "ensembles of six networks of one training: of a simplex, snapshots, checkpoints of SWA, SWA-Gaussian"
    roles = PICTURES

    def recipes(self, bench: Bench) -> Recipes:
        m = bench.scale.members
        return {
            STANDARD: bench.recipe(),
            "line": bench.recipe("line"),
            "simplex": bench.recipe("simplex", vertices=m),
            "snapshot": bench.recipe("snapshot", vertices=m),
            "swa": bench.recipe("swa-cyclic", vertices=m),
            "swag": bench.recipe("swag", vertices=m),
        }

    def evaluation(self, bench: Bench) -> dict[str, object]:
        return {**super().evaluation(bench), "random": bench.scale.members}

    def claims(self, bench: Bench) -> list[Claim[Panel]]:
        m = bench.scale.members
        others = {
            f"{m} random points of the simplex": answer("simplex", "random"),
            f"{m} snapshots": answer("snapshot", "vertices"),
            f"{m} checkpoints of SWA": answer("swa", "vertices"),
            f"{m} networks of SWA-Gaussian": answer("swag", "vertices"),
        }
        pair = together("line", EDGE)
        return [Claim(f"two points of the line are above {words}", pair, other) for words, other in others.items()]

    def draw(self, found: Panel) -> Figure:
        return found.comparison.draw()
