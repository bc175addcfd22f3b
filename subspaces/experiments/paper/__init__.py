"""The figures of the paper: what they take, how they are measured and drawn, and what is claimed of them."""

from subspaces.experiments.paper.claims import VERDICTS, Claim, Judgement
from subspaces.experiments.paper.figures import FIGURES, SCALES, Figure, Scale
from subspaces.experiments.paper.reproduce import Reproduced, Reproduction

__all__ = ["FIGURES", "SCALES", "VERDICTS", "Claim", "Figure", "Judgement", "Reproduced", "Reproduction", "Scale"]
