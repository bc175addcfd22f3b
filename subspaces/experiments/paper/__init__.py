"""The figures of the paper: what they take, how they are measured and drawn, and what is claimed of them."""

from subspaces.experiments.paper.claims import VERDICTS, Claim, Judgement
from subspaces.experiments.paper.figures import FIGURES, Figure
from subspaces.experiments.paper.making import FigurePlan, Reproduced
from subspaces.experiments.paper.reproduce import Reproduction, reproduce
from subspaces.experiments.paper.scales import SCALES, Scale, Setup

__all__ = [
    "FIGURES",
    "SCALES",
    "VERDICTS",
    "Claim",
    "Figure",
    "FigurePlan",
    "Judgement",
    "Reproduced",
    "Reproduction",
    "Scale",
    "Setup",
    "reproduce",
]
