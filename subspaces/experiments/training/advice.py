"""What to change in a recipe that cannot be trained as it is."""

from subspaces.core import memory
from subspaces.experiments.training.execution import Execution
from subspaces.experiments.training.recipe import Recipe, all_fields


def against_divergence(recipe: Recipe) -> str:
    """Return what to change where the loss or the weights are no numbers any more.

    That is what is out of the ordinary in the recipe, and the learning rate where nothing is.
    """
    known = all_fields()
    ranges = {name: known[name].metadata["ordinary"] for name in recipe.to_dict() if "ordinary" in known[name].metadata}
    high = [name for name, (_, most) in ranges.items() if getattr(recipe, name) > most]
    low = [name for name, (least, _) in ranges.items() if getattr(recipe, name) < least]
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
    lower = [name for name in ("batch", "vertices", "pad") if recipe.to_dict().get(name)]
    remedies = [f"lower {_named(recipe, lower)}"]
    if gpu:
        fewer = max(1, min(runs, execution.at_once or runs) // 2)
        remedies += [f"train fewer at once, such as --at-once {fewer}", "use --device cpu"]
    elif execution.resident is not False:
        remedies.append("leave the images on the disk with --no-resident")
    several = f"{runs} runs and " if gpu else ""
    where = f"out of memory on {execution.device} with {several}batches of {recipe.batch}"
    return f"{where}{memory.reason(error)}: {', or '.join(remedies)}"
