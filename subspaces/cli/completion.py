"""The names that a shell completes after the tabulator key."""

from collections.abc import Callable, Iterable


def completing(names: Callable[[], Iterable[str]]) -> Callable[[str], list[str]]:
    """Return what typer asks for the ends of a word; the names are looked up only then."""

    def complete(incomplete: str) -> list[str]:
        return [name for name in names() if name.startswith(incomplete)]

    return complete


def _recipes() -> Iterable[str]:
    from subspaces.training import RECIPES

    return RECIPES


def _figures() -> Iterable[str]:
    from subspaces.reports.figures import KINDS

    return KINDS


def _data_sets() -> Iterable[str]:
    from subspaces.data import SOURCES

    return SOURCES


def _metrics() -> Iterable[str]:
    from subspaces.evaluation.metrics import METRICS

    return METRICS


def _networks() -> Iterable[str]:
    from subspaces.networks import names

    return (*names(), "timm:", "torchvision:")


recipes, figures, data_sets, metrics, networks = map(completing, (_recipes, _figures, _data_sets, _metrics, _networks))
FIELDS = {"dataset": data_sets, "network": networks}
