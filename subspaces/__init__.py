"""One training run, a whole family of networks: lines, curves and simplexes in weight space."""

from subspaces import networks
from subspaces.batchnorm import recalibrate
from subspaces.ensembles import Ensemble
from subspaces.features import Sampled
from subspaces.shapes import Bezier, Line, Point, Shape, Simplex
from subspaces.storage import FileError, load, save
from subspaces.subspace import Subspace
from subspaces.version import __version__

__all__ = [
    "Bezier",
    "Ensemble",
    "FileError",
    "Line",
    "Point",
    "Sampled",
    "Shape",
    "Simplex",
    "Subspace",
    "__version__",
    "load",
    "networks",
    "recalibrate",
    "save",
]
