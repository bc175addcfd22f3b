"""What to change in a recipe that cannot be trained as it is."""

from subspaces import memory
from subspaces.training.config import Execution, Recipe
from subspaces.training.methods import unused

_MOST = {  # more of it has been of no use to anybody, and makes training diverge
    "beta": 1e3,
    "feature_similarity": 1e3,
    "weight_decay": 1.0,
    "momentum": 0.999,
    "sam_rho": 10.0,
    "learning_rate": 10.0,
}
_LEAST = {"epsilon": 1e-4}  # the difference of two networks is divided by it


def against_divergence(recipe: Recipe) -> str:
    """Return what to change where the loss or the weights are no numbers any more.

    That is what is out of the ordinary in the recipe, and the learning rate where nothing is.
    """
    used = [name for name in (*_MOST, *_LEAST) if name not in unused(recipe.method)]
    high = [name for name in used if getattr(recipe, name) > _MOST.get(name, float("inf"))]
    low = [name for name in used if getattr(recipe, name) < _LEAST.get(name, 0)]
    parts = [f"lower {_named(recipe, high)}"] if high or not low else []
    if low:
        parts.append(f"raise {_named(recipe, low)}")
    return " and ".join(parts)


def _named(recipe: Recipe, names: list[str]) -> str:
    chosen = names or ["learning_rate"]
    return " and ".join(f"--{name.replace('_', '-')} (now {_shown(getattr(recipe, name))})" for name in chosen)


def _shown(value: float) -> str:
    """Return a setting as a person would type it."""
    return f"{value:g}" if isinstance(value, float) else str(value)


def against_memory(recipe: Recipe, runs: int, execution: Execution, error: BaseException) -> str:
    """Return that memory ran out, with what, and how to need less of it."""
    gpu = execution.device.startswith("cuda")
    idle = unused(recipe.method)
    lower = [name for name in ("batch", "vertices", "pad") if name not in idle and getattr(recipe, name)]
    remedies = [f"lower {_named(recipe, lower)}"]
    if gpu:
        remedies += ["train fewer --seeds at once", "use --device cpu"]
    elif execution.resident is not False:
        remedies.append("leave the images on the disk with --no-resident")
    several = f"{runs} runs at once and " if gpu else ""
    where = f"out of memory on {execution.device} with {several}batches of {recipe.batch}"
    return f"{where}{memory.reason(error)}: {', or '.join(remedies)}"
