"""The catalogue: every figure of the paper, with what it takes, how it is measured, and what is claimed of it."""

from typing import Any

from subspaces.experiments.studies.catalogue import corrupted, distances, lines, simplexes, studied
from subspaces.experiments.studies.catalogue.claims import RULE, VERDICTS, Claim, Judgement, Quantity
from subspaces.experiments.studies.catalogue.compared import Compared, Panel
from subspaces.experiments.studies.catalogue.exhibit import Exhibit, Plan, Reproduced
from subspaces.experiments.studies.catalogue.scales import SCALES, Bench, Scale
from subspaces.text import Catalogue

__all__ = [
    "EXHIBITS",
    "RULE",
    "SCALES",
    "VERDICTS",
    "Bench",
    "Claim",
    "Compared",
    "Exhibit",
    "Judgement",
    "Panel",
    "Plan",
    "Quantity",
    "Reproduced",
    "Scale",
]

EXHIBITS: Catalogue[type[Exhibit[Any]]] = Catalogue(
    "exhibit",
    [  # in the order of the paper; its first figure is a sketch
        simplexes.Planes,
        distances.Dynamics,
        lines.Along,
        lines.EnsemblesAlong,
        lines.Betas,
        simplexes.SimplexMidpoint,
        studied.LabelNoise,
        corrupted.CorruptedAlong,
        lines.Epochs,
        simplexes.SixModels,
        studied.LargeNoise,
        lines.OffTheLine,
        lines.Samples,
        studied.Integral,
        distances.PointInit,
        distances.SimplexDynamics,
        distances.Endpoints,
        lines.SwaLine,
        corrupted.CorruptedMidpoint,
        corrupted.CorruptedBest,
        studied.Instability,
    ],
)
