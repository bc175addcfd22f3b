"""The model card of a family: Markdown with metadata in front, as the Hugging Face hub shows it."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from subspaces.core import batchnorm, checks, storage
from subspaces.errors import ArgumentError
from subspaces.text import markdown, printable
from subspaces.version import __version__

MARK = "<!-- Written by subspaces, and replaced by the next save_pretrained while this line is here. -->"
_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]{0,39}")
_NAMES = {"Line": "line", "Bezier": "Bézier curve", "Simplex": "simplex", "Point": "single point"}


@dataclass(frozen=True)
class ModelCard:
    """What a card says beside what the family itself is.

    Args:
        license: an identifier as the hub knows it, such as "mit".
        tags: words to be found by.
        metrics: numbers by name, text as it is shown in a terminal, or what has it: an `Evaluation`.
    """

    license: str | None = None
    tags: tuple[str, ...] = ()
    metrics: Any = None

    @classmethod
    def of(cls, license: Any, tags: Any, metrics: Any) -> "ModelCard":
        """Return a card of arguments that were checked."""
        if license is not None and not (isinstance(license, str) and _LICENSE.fullmatch(license)):
            raise ArgumentError(
                f"license={checks.shown(license)}: expected an identifier of the hub, such as 'mit' or 'apache-2.0'"
            )
        words = checks.several("tags", tags, "a list of words, such as ['image-classification']")
        for word in words:
            if not isinstance(word, str) or not word.strip():
                raise ArgumentError(f"tags got {checks.shown(word)}: expected words, such as 'image-classification'")
        return cls(license, tuple(words), _checked(metrics))

    def text(self, family: Any, source: str, shared: bool) -> str:
        """Return the card of a family that `from_pretrained(source, …)` reads."""
        return "\n".join([*self._front(), "", MARK, "", *_about(family, source, shared), "", *self._measured(), ""])

    def _front(self) -> list[str]:
        """Return the metadata; a text in JSON is the same text in YAML."""
        licensed = [] if self.license is None else [f"license: {json.dumps(self.license)}"]
        tags = dict.fromkeys(("subspaces", "pytorch", *self.tags))
        return ["---", "library_name: subspaces", *licensed, "tags:", *(f"- {json.dumps(tag)}" for tag in tags), "---"]

    def _measured(self) -> list[str]:
        if self.metrics is None:
            return ["## Measured", "", "No measurements were given when this was saved."]
        if isinstance(self.metrics, str):
            lines = [printable(line).rstrip() for line in self.metrics.strip("\n").splitlines()]
            fence = "`" * max(3, 1 + max(map(len, re.findall("`+", self.metrics)), default=0))
            return ["## Measured", "", f"{fence}text", *lines, fence]
        rows = [f"| {markdown(name)} | {value:.4g} |" for name, value in self.metrics.items()]
        return ["## Measured", "", "| metric | value |", "| --- | --- |", *rows]


def _checked(metrics: Any) -> Mapping[str, float] | str | None:
    """Return numbers by name, or text."""
    table = getattr(metrics, "table", None)
    found = table() if callable(table) else metrics
    if found is None or (isinstance(found, str) and found.strip()):
        return found
    if isinstance(found, Mapping) and found and all(isinstance(name, str) for name in found):
        return {name: checks.number(f"metrics[{name!r}]", value) for name, value in found.items()}
    raise ArgumentError(
        f"metrics={checks.shown(metrics)}: expected numbers by name, such as {{'accuracy': 0.9}}, an Evaluation or text"
    )


def _about(family: Any, source: str, shared: bool) -> list[str]:
    """Return what the family is and how it is loaded."""
    network, kind = type(family.template).__name__, storage.describe(family.shape)["type"]
    normed = bool(batchnorm.tracked(family.template))
    frozen = any(not parameter.requires_grad for parameter in family.template.parameters())
    count = sum(omega.shape[1] for omega in family.omega.values())
    options = [f"shape={printable(str(family.shape))}"] if kind not in _NAMES else []
    options += ["groups=groups"] if family.options is not None else []
    arguments = ", ".join([json.dumps(source), "make_net", *options])
    rows = {
        "shape": str(family.shape),
        "vertices": str(family.shape.vertices),
        "alpha is drawn": "for each layer" if family.layerwise else "for the whole network",
        "network": network,
        "trainable weights of a vertex": f"{count:,} ({', '.join(dtypes(family))})",
        "frozen parameters": "none"
        if not frozen
        else "in the file"
        if shared
        else "not in the file: those of make_net",
        "written by": f"subspaces {__version__}",
    }
    midpoint = "ss.recalibrate(family.midpoint(), loader)" if normed else "family.midpoint()"
    return [
        f"# {markdown(source.rpartition('/')[2])}",
        "",
        f"A {_NAMES.get(kind, 'subspace')} in the space of a network's weights: each of its points is a network, mixed "
        "from the vertices.",
        "",
        "| | |",
        "| --- | --- |",
        *(f"| {name} | {markdown(value)} |" for name, value in rows.items()),
        "",
        "## Load it",
        "",
        "```python",
        "import subspaces as ss",
        "",
        f"family = ss.Subspace.from_pretrained({arguments})",
        f"network = {midpoint}.eval()",
        "```",
        "",
        f"`make_net` is a function that makes the network ({markdown(network)}); its code is not in this folder"
        + (", nor is `groups`, the function that made the optimiser groups" if family.options is not None else "")
        + (". `loader` yields training batches, from which the batch-norm statistics of the point are made" * normed)
        + ".",
        "",
        "The method is that of [Learning Neural Network Subspaces](https://arxiv.org/abs/2102.10472), ICML 2021.",
    ]


def dtypes(family: Any) -> list[str]:
    """Return the names of the dtypes of the vertices."""
    return sorted({str(omega.dtype).removeprefix("torch.") for omega in family.omega.values()})
