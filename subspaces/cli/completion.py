"""The names that a shell completes after the tabulator key."""

from collections.abc import Callable, Iterable

from subspaces import networks as known_networks
from subspaces.data import SOURCES
from subspaces.evaluation.metrics import METRICS
from subspaces.reports.figures import KINDS
from subspaces.training import RECIPES


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return what typer asks for the ends of a word; the names are those that there are then."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


recipes = completing(lambda: RECIPES)
figures = completing(lambda: KINDS)
data_sets = completing(lambda: SOURCES)
metrics = completing(lambda: METRICS)
networks = completing(lambda: (*known_networks.names(), "timm:", "torchvision:"))
FIELDS = {"dataset": data_sets, "network": networks}
