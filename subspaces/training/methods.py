"""What is known of each method without training it: its shapes, its schedule, how it answers, what it costs.

A subspace is trained as such. All others train one network, and differ in what they keep of it:

    swa-cyclic, swa-constant   checkpoints, whose midpoint is the averaged network
    swag                       samples of a Gaussian that is fitted to the checkpoints of swa-cyclic
    snapshot, fge              checkpoints, which are the members of an ensemble
    ema, early-stopping, sam   one network
    integral                   the end g(x, P(1)) of a line
"""

from typing import Literal, get_args

from subspaces.shapes import Bezier, Line, Point, Shape, Simplex
from subspaces.training.schedule import CHECKPOINTS

Method = Literal[
    "standard",
    "line",
    "curve",
    "simplex",
    "swa-cyclic",
    "swa-constant",
    "swag",
    "snapshot",
    "fge",
    "ema",
    "early-stopping",
    "sam",
    "integral",
]
METHODS: tuple[str, ...] = get_args(Method)
Answer = Literal["midpoint", "pair", "vertices", "random", "dropout"]
"""One network, the ensemble of alpha and 1 - alpha, of all vertices, of random points, or of dropout's masks."""

SUBSPACES = ("line", "curve", "simplex")
AVERAGED = ("swa-cyclic", "swa-constant")
MEMBERS = ("swag", "snapshot", "fge")
COUNTED = ("curve", "simplex", *AVERAGED, *MEMBERS)  # whose number of vertices is free
OWN_SCHEDULE = {
    "swa-cyclic": "swa-cyclic",
    "swa-constant": "swa-constant",
    "swag": "swa-cyclic",
    "snapshot": "snapshot",
    "fge": "fge",
}
_ANSWERS: dict[str, tuple[Answer, ...]] = {
    "line": ("midpoint", "pair"),
    "curve": ("midpoint", "pair"),
    "simplex": ("midpoint", "vertices", "random"),
    **dict.fromkeys(AVERAGED, ("midpoint", "vertices")),
    **dict.fromkeys(MEMBERS, ("vertices",)),
}
_ONLY = {"ema_decay": "ema", "sam_rho": "sam", "epsilon": "integral"}
_COST = {"sam": 2.0, "integral": 3.0}


def trained_shape(method: str, m: int) -> Shape:
    """Return the shape that is trained: a single network is a `Point`."""
    if method == "curve":
        if m < 3:
            raise ValueError(f"vertices={m}: a curve has two ends and at least one bend")
        return Bezier(m - 2)
    if method == "simplex":
        return Simplex(m)
    return Line() if method in ("line", "integral") else Point()


def result_shape(method: str, m: int) -> Shape:
    """Return the shape of the family that a finished run holds."""
    if method in SUBSPACES:
        return trained_shape(method, m)
    if method in (*AVERAGED, *MEMBERS):
        if m < 2:
            raise ValueError(f"vertices={m}: {method} keeps two checkpoints or more")
        return Line() if method in AVERAGED and m == 2 else Simplex(m)
    return Point()


def answers(method: str, dropout: float) -> tuple[Answer, ...]:
    """Return the ways in which a run answers, the method's own first."""
    found = _ANSWERS.get(method, ("midpoint",))
    return (*found, "dropout") if dropout > 0 and found[0] == "midpoint" else found


def middle(method: str, m: int) -> str:
    """Return what the midpoint of a run's family is called."""
    if result_shape(method, m).vertices == 1:
        return "network"
    return "midpoint" if method in SUBSPACES else f"average of {m}"


def vertices(method: str) -> str:
    """Return what the vertices of a run's family are called."""
    return "vertices" if method in SUBSPACES else "checkpoints" if method in AVERAGED else "members"


def cost(method: str) -> float:
    """Return how many networks run forward and backward on a batch in one step."""
    return _COST.get(method, 1.0)


def unused(method: str, branch: int = 0) -> set[str]:
    """Return the fields of a recipe that change nothing for a method."""
    found = set(_ONLY) - {name for name, user in _ONLY.items() if user == method}
    if method not in (*SUBSPACES, "integral"):
        found |= {"init", "beta"}
    if method not in SUBSPACES:
        found |= {"layerwise", "samples", "feature_similarity"}
    if method not in COUNTED:
        found.add("vertices")
    if method in OWN_SCHEDULE:
        found.add("schedule")  # it has no choice
    return found if branch else found | {"trunk"}


def checkpoints(method: str, epochs: int, m: int) -> list[int]:
    """Return after how many epochs the method keeps its weights; most keep none."""
    return CHECKPOINTS[OWN_SCHEDULE[method]](epochs, m) if method in OWN_SCHEDULE else []
