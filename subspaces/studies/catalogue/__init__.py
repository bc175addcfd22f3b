"""The catalogue: every figure of the paper, with what it takes, how it is measured, and what is claimed of it."""

# isort: off
from subspaces.studies.catalogue import lines
from subspaces.studies.catalogue.claims import RULE, VERDICTS, Claim, Judgement, Quantity
from subspaces.studies.catalogue.exhibit import EXHIBITS, Exhibit, Plan, Reproduced
from subspaces.studies.catalogue.scales import SCALES, Bench, Scale

__all__ = [
    "EXHIBITS",
    "RULE",
    "SCALES",
    "VERDICTS",
    "Bench",
    "Claim",
    "Exhibit",
    "Judgement",
    "Plan",
    "Quantity",
    "Reproduced",
    "Scale",
    "lines",
]
