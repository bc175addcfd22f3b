"""The model card beside an export: what it is, how good it is, and how to load it, in plain English.

Names come from files and folders of anybody, so each is written as text: neither Markdown nor HTML has a meaning in it.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from subspaces.core.batchnorm import tracked
from subspaces.core.ensemble import Ensemble
from subspaces.core.family import Subspace
from subspaces.core.selection.selection import shown
from subspaces.evaluation.answers import named
from subspaces.evaluation.record import Row
from subspaces.export.formats import TOLERANCE, Written
from subspaces.export.making import Made
from subspaces.text import number, printable

MEANING = ", the mutual information of answer and member in nats, 0 where all networks say the same"
SHOWN = 20  # classes that are named

LOADING = {
    "safetensors": """from safetensors.torch import load_file
network.load_state_dict(load_file({file}))   # a plain {network}, strict=True
{one}""",
    "ensemble": """from safetensors.torch import load_file
ensemble = torch.nn.ModuleDict({{"members": torch.nn.ModuleList(networks)}})   # {count} plain {network}
ensemble.load_state_dict(load_file({file}))
{several}""",
    "family": """import subspaces as ss
family = ss.load({file}, make_network)       # a factory of a plain {network}
network = ss.recalibrate(family.midpoint(), train_loader).eval()""",
    "pt2": """import torch
program = torch.export.load({file}).module()
{outputs} = program({inputs})""",
    "onnx": """import onnxruntime
session = onnxruntime.InferenceSession({file}, providers=["CPUExecutionProvider"])
{outputs} = session.run(None, {{{fed}}})""",
}
SOFTMAX = {"logits": ".softmax(-1)", "log-probabilities": ".exp()", "probabilities": ""}


def card(made: Made, file: Path, format: str, written: Written | None = None) -> str:
    """Return the card of an export as Markdown."""
    about = made.about
    parts = [
        f"# {_text(about.name)}: {_text(about.point)}",
        _summary(made, file, format),
        _table(_facts(made)),
        "## Measured",
        *_measured(made),
        *map(_text, made.notes),
        "## Checks",
        "\n".join(f"- {line}" for line in _checks(made, format, written)),
        "## How to load it",
        f"```python\n{_loading(made, file, format)}\n```",
        _inputs(made, format),
    ]
    return "\n\n".join(filter(None, parts)) + "\n"


def _summary(made: Made, file: Path, format: str) -> str:
    about = made.about
    what = {
        "network": "one network",
        "ensemble": f"{number(max(2, len(about.alphas)))} networks that answer as one",
        "family": "a whole family of networks; which of them answers is an input, alpha",
    }[about.kind]
    if about.kind == "ensemble" and not about.alphas:
        what = f"an ensemble of {_text(about.point)}"
    kind = {"safetensors": "weights", "pt2": "program", "onnx": "program"}[format]
    of = made.network if format == "safetensors" or made.program is None else made.program.networks
    types = sorted({str(each.dtype).removeprefix("torch.") for each in of.parameters()})
    numbers = f", in {' and '.join(types)}" if types else ""
    return f"**{_text(file.name)}** holds the {kind} of {what}{numbers}, for a CPU or whatever you move it to."


def _facts(made: Made) -> Iterator[tuple[str, str]]:
    about, recipe = made.about, made.about.recipe
    classes = ", ".join(about.classes[:SHOWN]) + (", …" if len(about.classes) > SHOWN else "")
    yield "network", about.network
    yield "point", about.point
    if about.alphas:
        yield "alpha", " and ".join(map(shown, about.alphas))
    yield "data set", about.dataset or "your own; the exporter was not told which"
    if classes:
        yield "classes", f"{len(about.classes)}: {classes}"
    if about.image_shape:
        yield "images", f"{' × '.join(map(str, about.image_shape))} (channels × height × width)"
    elif about.takes:
        yield "inputs", ", ".join(f"{name} {kind}" for name, kind in about.takes.items())
    if about.mean:
        yield "mean, std", ", ".join(f"{m:.4g} ± {s:.4g}" for m, s in zip(about.mean, about.std, strict=True))
    elif about.image_shape:
        yield "mean, std", "none: numbers enter the network as they are"
    images = f"made anew from {about.statistics_images:,} training images"
    yield "batch-norm statistics", images if about.statistics_images else "as the network has them, or it has none"
    if recipe:
        yield "recipe", f"{recipe.get('name')}: method {recipe.get('method')}, {recipe.get('epochs')} epochs"
        yield "seed", str(recipe.get("seed"))
    yield "commit", about.commit
    yield "exported with", ", ".join(f"{name} {version}" for name, version in about.versions.items())


def _measured(made: Made) -> Iterator[str]:
    """Yield the numbers of an evaluation, or that there are none."""
    if not made.rows:
        why = "No evaluation of this point was found"
        yield f"Not evaluated. {why}: `subspaces evaluate RUN` measures a run, `ss.evaluate` anything else."
        return
    rows: Sequence[Row] = made.rows
    known = {metric.name: metric for metric in made.metrics}
    names = [name for name in rows[0].metrics if name in known]
    family = made.about.kind == "family"
    head = [*(["alpha"] if family else []), "split", "images", *(_text(known[name].title) for name in names)]
    lines = [head, ["---"] * len(head)]
    for row in rows:
        values = [_text(known[name].shown(row.metrics[name])) for name in names]
        lines.append([*([named(row.alphas)] if family else []), _text(row.split), f"{row.count:,}", *values])
    yield "\n".join(f"| {' | '.join(line)} |" for line in lines)
    meanings = "; ".join(f"{known[name].label}, {known[name].meaning}" for name in names)
    yield f"From evaluation.json of the run: {_text(meanings)}."
    if family:
        yield "Each point was measured with batch-norm statistics of its own, which this file mixes: see the checks."


def _checks(made: Made, format: str, written: Written | None) -> Iterator[str]:
    things = "images" if made.about.image_shape else "examples"
    if written is not None and made.program is not None:
        count = made.program.inputs.count
        other = "" if made.fixed else ", and on one" if count > 1 else ", and on two"
        yield (
            f"Read back and run on {_counted(count, things)}{other}: its "
            f"outputs differ from the network's by at most {written.difference:.2g}; more than {TOLERANCE:g} would not "
            "have been written."
        )
        if made.fixed:
            yield (
                f"It takes {_counted(count, things)} at a time, as the example has, and no other number: "
                f"{_text(made.fixed)}."
            )
    else:
        yield "Read back: every tensor is the network's, bit for bit."
    if written is not None and written.note:
        yield written.note
    if (off := made.deviation) is not None and format != "safetensors":
        labels = "" if off.changed is None else f"; {100 * off.changed:.2g} % of the labels are others"
        outputs = "probabilities" if made.about.classes else "outputs"
        yield (
            f"Batch-norm statistics were measured at {made.about.anchors} points and are mixed between them; at those "
            f"points they are exact. At {named(off.places)}, between them, the {outputs} of {off.images} {things} "
            f"differ from those of freshly calibrated networks by at most {off.largest:.2g} and by {off.mean:.2g} on "
            f"average{labels}."
        )
    if format == "safetensors" and isinstance(made.network, Subspace) and tracked(made.network.template):
        yield "Batch-norm statistics belong to a point: make them anew for the point that you take (`ss.recalibrate`)."


def _counted(count: int, things: str) -> str:
    return f"{count} {things if count != 1 else things[:-1]}"


def _loading(made: Made, file: Path, format: str) -> str:
    about = made.about
    kind = about.kind if format == "safetensors" and about.kind != "network" else format
    count = len(made.network.members) if isinstance(made.network, Ensemble) else 1
    one, several = "network.eval()", "ensemble.eval()"
    if about.image_shape and about.task and about.network_outputs and about.average in ("", "probabilities"):
        images = "(images - mean) / std" if about.mean else "images"
        answer = f"network.eval()({images}){SOFTMAX[about.network_outputs]}"
        one, several = f"probabilities = {answer}", f"probabilities = sum({answer} for network in networks) / {count}"
    named = made.program is not None and made.program.inputs.keyword
    return LOADING[kind].format(
        file=_quoted(file.name),
        network=printable(about.network),
        count=count,
        one=one,
        several=several,
        inputs=", ".join(f"{name}={name}" if named else name for name in about.takes),
        outputs=", ".join(about.returns) + ("," if format == "onnx" and len(about.returns) == 1 else ""),
        fed=", ".join(f'"{name}": {name}' for name in about.takes),
    )


def _inputs(made: Made, format: str) -> str:
    """Return what goes in and what comes out, in sentences."""
    about, program = made.about, format != "safetensors"
    sentences = [f"`{name}` {'are' if name == 'images' else 'is'} {kind}." for name, kind in about.takes.items()]
    if about.kind == "family" and sentences:
        sentences.pop()
    if about.mean and sentences:
        whose = "happens inside" if program else "is yours to do"
        range_ = " with numbers from 0 to 1" if about.image_shape else ""
        sentences[0] = f"{sentences[0][:-1]}{range_}; the normalisation with mean and std {whose}."
    if not program and about.recipe:
        how = f"{_quoted(about.network)}, classes={len(about.classes)}, image_shape={about.image_shape}"
        sentences.append(f"A plain network is subspaces.networks.build({_text(how)}).")
    if program and about.kind == "family":
        kind = about.takes["alpha"].partition(" ")[0]
        numbers = f"{about.domain} {kind} numbers of at least 0 that sum to 1"
        alpha = f"a {kind} number from 0 to 1" if about.domain == "number" else numbers
        sentences.append(f"`alpha` is {alpha}; one off that is moved to the nearest end, or scaled to that sum.")
    for name, kind in about.returns.items() if program else ():
        meaning = MEANING if name == "disagreement" and about.classes else ""
        verb = "are" if name == "probabilities" else "is"
        sentences.append(f"`{name}` {verb} {kind.removeprefix('float32 ')}{meaning}.")
    if format == "pt2":
        sentences.append("A .pt2 file can run code when it is loaded: load those of people you trust.")
    return " ".join(sentences)


def _table(rows: Iterator[tuple[str, str]]) -> str:
    lines = ["| | |", "|---|---|", *(f"| {name} | {_text(value)} |" for name, value in rows)]
    return "\n".join(lines)


def _text(text: str) -> str:
    """Return text as a line of Markdown that shows it as it is, with nothing of it as Markdown, HTML or a link."""
    line = printable(" ".join(text.split()))
    escaped = re.sub(r"[\\`*_\[\]|~]", r"\\\g<0>", line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))
    return re.sub(r"://|www\.", lambda found: f"{found[0][:-1]}&#{ord(found[0][-1])};", escaped)


def _quoted(text: str) -> str:
    """Return text as Python writes it, in double quotes."""
    quoted = repr(text)
    return quoted if '"' in text else f'"{quoted[1:-1]}"'
