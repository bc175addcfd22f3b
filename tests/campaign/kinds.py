"""All kinds of cases."""

from collections.abc import Callable, Collection
from pathlib import Path

from campaign import scenes
from campaign.calls import Calls
from campaign.commands import Commands
from campaign.crashes import Crashes
from campaign.kills import Kills
from campaign.malice import Malice
from campaign.mutations import Mutations
from campaign.pool import Kind
from campaign.scenes import Scene

KINDS: dict[str, Callable[[dict[str, Scene], Path], Kind]] = {
    one.kind: one for one in (Mutations, Kills, Crashes, Commands, Calls, Malice)
}


def make(base: Path, wanted: Collection[str], quick: bool = False) -> dict[str, Kind]:
    """Prepare the scenes, and return the kinds that are wanted."""
    made = scenes.prepare(base, quick)
    return {name: KINDS[name](made, base) for name in KINDS if name in wanted}
