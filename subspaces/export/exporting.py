"""Write a network, an ensemble or a family as one file, with a card: what is behind `ss.export`."""

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from subspaces.core import batchnorm, checks, distributed, functional, memory, nested, storage
from subspaces.core.ensemble import Ensemble
from subspaces.core.family import Subspace
from subspaces.core.outputs import Outputs
from subspaces.core.randomness import seeded
from subspaces.errors import ArgumentError, UserError
from subspaces.evaluation.display import Progress, counted
from subspaces.evaluation.tasks import Classification, Task, task_of
from subspaces.export import FORMATS, ExportError, formats
from subspaces.export.description import Chosen, Metadata, Point, card_of, choose
from subspaces.export.program import Inputs, Program, WholeFamily, anchors, answering, between
from subspaces.networks.factories import in_words
from subspaces.version import __version__


@dataclass
class Export:
    """A module, the points of it that are exported, and what `make` makes of them."""

    module: nn.Module  # a network, an ensemble or a family, which is left as it is
    chosen: Chosen
    inputs: Inputs | None  # an example; None for weights alone
    task: Classification | None  # None: outputs as they are
    facts: dict[str, Any]  # fields of `Metadata`
    weights: bool = False  # whether weights alone are written
    statistics: Iterable[Any] | None = None  # training batches, for the batch-norm statistics of each point
    seed: int = 0  # of random numbers in a network while statistics are made
    measured: Mapping[str, Any] = field(default_factory=dict)  # head, rows and note of an evaluation of the points

    network: Any = None  # one network, an ensemble or a family, on the CPU, whose weights are written
    program: Any = None  # a `Program`; None for weights without an example
    trials: list[tuple[tuple[Tensor, ...], dict[str, Tensor]]] = field(default_factory=list)
    # what the program is checked with, inputs and outputs: the example, and another number of examples
    deviation: float | None = None  # of answers with mixed statistics from those with measured ones, at most
    difference: float = 0.0  # of the file's answers from those of the program
    seen: int = 0  # examples of the statistics of a point

    def make(self, progress: Progress) -> None:
        """Make the network and its program, and run it on the example."""
        chosen = self.chosen
        if chosen.kind == "family":
            self._make_family(progress)
        elif chosen.alphas:
            networks = self._networks(chosen.alphas, "networks", progress)
            average: Any = "outputs" if self.task is None else self.task.averages[0]
            self._finish(networks[0] if chosen.kind == "network" else Ensemble(networks, average).eval())
        else:
            self._finish(self._calibrated(functional.copied(self.module)))

    def _networks(self, alphas: Sequence[Any], what: str, progress: Progress) -> list[nn.Module]:
        """Return the networks at points of the family."""
        family: Any = self.module
        batchnorm.check_given(family.template, self.statistics)
        tick, networks = counted(progress, what, 0, len(alphas)), []
        for alpha in alphas:
            networks.append(self._calibrated(family.at(alpha)))
            tick(1)
        return networks

    def _calibrated(self, network: nn.Module) -> nn.Module:
        """Return a network, which is changed, with batch-norm statistics made anew."""

        def run(module: Any, batch: Any) -> None:
            args, named = nested.inputs(batch)
            with _naming("statistics= has a batch that the network fails on", "expected (inputs, targets), or inputs"):
                module(*args, **named)
            self.seen += nested.batch_size((args, named)) or 0

        if self.statistics is not None and batchnorm.tracked(network):
            self.seen = 0
            with seeded(self.seed, torch.device("cpu")):
                batchnorm.recalibrate(network, self.statistics, forward=run)
        return _plain(network)

    def _make_family(self, progress: Progress) -> None:
        """Make a family whose batch-norm statistics are mixed from those at anchors, and say how far that is off."""
        family: Any = _plain(functional.copied(self.module))
        normed = bool(batchnorm.tracked(family.template)) and not self.weights
        places, others = (anchors(family.shape), between(family.shape)) if normed else ([], [])
        networks = self._networks([*places, *others], "anchors", progress) if normed else []
        self.facts["anchors"] = len(places)
        self._finish(family, networks[: len(places)])
        if self.program is not None and others:
            fresh = [self._program(each) for each in networks[len(places) :]]
            self.deviation = max(map(self._deviation, others, fresh))

    @torch.no_grad()
    def _deviation(self, alpha: Any, fresh: Program) -> float:
        """Return how far the first output of a family is from that of a freshly calibrated network, at most."""
        program, tensors = self.program, self.program.inputs.tensors
        answers = program.answer(*program.with_alpha(tensors, alpha)), fresh.answer(*tensors)
        mixed, measured = (next(iter(each.values())) for each in answers)
        return float((mixed - measured).abs().max())

    def _finish(self, network: nn.Module, anchored: Sequence[nn.Module] = ()) -> None:
        """Run the program of a network, and describe it; of weights alone nothing need be known."""
        self.network = network
        self.facts |= {"point": self.chosen.words, "alphas": self.chosen.alphas, "statistics_images": self.seen}
        if self.inputs is not None:
            self.program = self._program(network, anchored)
            self.facts |= self._try(self.program)

    def _program(self, network: nn.Module, anchored: Sequence[nn.Module] = ()) -> Program:
        """Return a network, with its example, as a program, after a look at its outputs."""
        assert self.inputs is not None
        network, inputs = _in_one_precision(network, self.inputs)
        how: dict[str, Any] = {name: self.facts.get(name, ()) for name in ("mean", "std")}
        if isinstance(network, Subspace):
            how["shape"] = network.shape
            network = WholeFamily(network, [_in_one_precision(each, inputs)[0] for each in anchored])
        if self.task is None:
            return Program(network, inputs, None, **how).eval()
        several = isinstance(network, Ensemble)
        member = network.members[0] if isinstance(network, Ensemble) else network
        alone = Program(member, inputs, None, **how).eval()
        output = _run(alone.output, alone.with_alpha(inputs.tensors), inputs)
        return Program(answering(self.task, network, output), inputs, self.task, several=several, **how).eval()

    def _try(self, program: Program) -> dict[str, Any]:
        """Run the program on the example and on another number, and return what the metadata say of its outputs."""
        task, inputs, classes = program.task, program.inputs, self.facts["classes"]
        for tensors, what in ((inputs.tensors, inputs), (inputs.resized(), "another number of examples")):
            given = program.with_alpha(tensors)
            self.trials.append((given, _run(program.answer, given, what)))
        expected = self.trials[0][1]
        for name, value in expected.items():
            if bool((value.isnan() if task is None else ~value.isfinite()).any()):
                raise ExportError(f"the network returns NaN or infinity ({name}): its weights or the example hold some")
        if task is None:
            if classes:
                raise ArgumentError(f"classes={checks.shown(list(classes))}: expected it with a classification only")
            return {"task": "outputs", "network_outputs": ""}
        size = next(iter(expected.values())).shape[1 if task.of == "pixels" else -1]
        classes = classes or tuple(map(str, range(size)))
        if len(classes) != size:
            raise ArgumentError(f"classes has {len(classes)} names: expected {size}, one for each output")
        return {"classes": classes, "task": task.name, "network_outputs": str(program.network.member_outputs)}

    @property
    def about(self) -> Metadata:
        """The metadata, with type and shape of what goes in and comes out, n for the number of examples."""
        if self.program is None:
            return Metadata(self.chosen.kind, **{"task": "", **self.facts})
        (inputs, outputs), (others, found) = self.trials
        takes = {name: _form(a, b) for name, a, b in zip(self.program.names, inputs, others, strict=True)}
        returns = {name: _form(a, found[name]) for name, a in outputs.items()}
        return Metadata(self.chosen.kind, **self.facts, takes=takes, returns=returns)


def _plain(network: nn.Module) -> nn.Module:
    """Return a network, which is changed, in eval mode, on the CPU, its numbers in the order of their dimensions."""
    found = network.cpu().eval().requires_grad_(False)
    return found.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload, no-any-return]


def _in_one_precision(network: nn.Module, inputs: Inputs) -> tuple[nn.Module, Inputs]:
    """Return a network and its example in float32, or in float64 if all numbers of both are."""
    kinds = {each.dtype for each in (*network.parameters(), *network.buffers()) if each.is_floating_point()}
    entering = {each.dtype for each in inputs.tensors if each.is_floating_point()}
    if kinds | entering <= {torch.float64}:
        return network, inputs
    tensors = tuple(each.float() if each.is_floating_point() else each for each in inputs.tensors)
    network = network if kinds <= {torch.float32} else functional.copied(network).float()
    return network, replace(inputs, tensors=tensors)


def _form(tensor: Tensor, other: Tensor) -> str:
    """Return type and shape of a tensor, with n for each length that `other`, of another batch, does not share."""
    lengths = other.shape if other.ndim == tensor.ndim else tensor.shape
    sizes = ("n" if a != b else str(a) for a, b in zip(tensor.shape, lengths, strict=True))
    return f"{str(tensor.dtype).removeprefix('torch.')} [{', '.join(sizes)}]"


@torch.no_grad()
def _run(call: Callable[..., Any], tensors: Sequence[Tensor], what: object) -> Any:
    """Run a program's network, and name what it does not take."""
    bytes_ = "divide bytes by 255, " if tensors[0].dtype == torch.uint8 else ""
    with _naming(f"the network fails on {what}", f"{bytes_}pass an example of the shape and type that it takes"):
        return call(*tensors)


@contextmanager
def _naming(what: str, expected: str) -> Iterator[None]:
    """Say what a network fails on; it need not be ours, and may raise anything."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        if memory.ran_out(error):
            raise
        raise ExportError(f"{what} ({in_words(error)[:300]}): {expected}") from error


# Of a module


def of_module(
    module: nn.Module,
    point: Point,
    weights: bool,
    *,
    example: Any = None,
    task: Task | str | None = None,
    outputs: Outputs | None = None,
    classes: Sequence[str] | None = None,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    statistics: Iterable[Any] | None = None,
) -> Export:
    """Return a module of the user's own as an export that is still to be made; see `ss.export` for the arguments."""
    module = distributed.unwrapped(module)
    if any(map(is_lazy, module.parameters())):
        raise ArgumentError("export got a network with lazy parameters: call it once, so that they get their shapes")
    if statistics is not None:
        checks.batches("statistics", statistics)
    inner: Any = module.template if isinstance(module, Subspace) else module
    inner = inner.members[0] if isinstance(inner, Ensemble) else inner  # whose inputs are those of the whole
    inputs = None if weights and example is None else Inputs.of(inner, example)
    facts: dict[str, Any] = {
        "name": "",
        "network": type(inner).__name__,
        "classes": () if classes is None else tuple(map(str, checks.several("classes", classes, "a list of names"))),
        "image_shape": tuple(inputs.tensors[0].shape[1:]) if inputs and inputs.names == ("images",) else (),
        **_normalisation(inputs, {"mean": mean, "std": std}),
        "versions": versions(),
    }
    chosen = Chosen("ensemble" if isinstance(module, Ensemble) else "network", "as it was given")
    if isinstance(module, Subspace):
        chosen = choose(point, module.shape, len(module.layers))
    elif not isinstance(point, str) or point != "midpoint":
        kind = type(module).__name__
        raise ArgumentError(f"point={checks.shown(point)}: a {kind} has no points, a Subspace or run has")
    return Export(module, chosen, inputs, _task(task, outputs), facts, weights, statistics)


def _task(task: Task | str | None, outputs: Outputs | None) -> Classification | None:
    """Return the task that a user names, by default a classification of examples; None for outputs as they are."""
    found = None if isinstance(task, str) and task == "outputs" else task_of(task)
    if isinstance(found, Classification):
        return replace(found, outputs=outputs or found.outputs)
    if found is not None or outputs is not None:
        raise ArgumentError(
            f"task={checks.shown(task)}, outputs={checks.shown(outputs)}: expected a classification; for a regression, "
            "or anything else, pass task='outputs' alone, and the program returns what the network does"
        )
    return None


def _normalisation(inputs: Inputs | None, given: Mapping[str, Any]) -> dict[str, tuple[float, ...]]:
    """Return mean and std, one number of each for every channel of the example, or none."""
    found = dict[str, tuple[float, ...]]()
    for name, value in given.items():
        numbers = [] if value is None else checks.several(name, value, "a list with one number for each channel")
        found[name] = tuple(checks.number(name, each) for each in numbers)
    count = max(map(len, found.values()))
    if inputs is not None and count:
        first = inputs.tensors[0]
        if len(inputs.names) > 1 or first.ndim < 2 or not first.is_floating_point():
            raise ArgumentError(f"mean= and std= are for one input of floats: this network takes {inputs}")
        count = first.shape[1]
    if any(len(numbers) != count for numbers in found.values()) or min(found["std"], default=1) <= 0:
        raise ArgumentError(f"{found}: expected one of each for the {count} channels, std above 0, or neither")
    return found


def versions() -> dict[str, str]:
    """Return the versions that a file is exported with."""
    return {"subspaces": __version__, "torch": torch.__version__, "python": platform.python_version()}


def check_target(path: Any) -> Path:
    """Return where to write, which must be possible; the end of the name is the format."""
    target = checks.folder("path", path)
    if (ending := target.suffix[1:].lower()) not in FORMATS:
        raise ArgumentError(f"path={str(path)!r}: expected a name that ends in .safetensors, .pt2 or .onnx")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"export to {target}, but there is no folder {target.parent}: make it first")
    if (target.parent / "config.json").is_file() and (target.parent / "log.jsonl").is_file():
        raise ExportError(f"export to {target}, in the folder of a run, which keeps its own files: expected another")
    if ending == "onnx":
        formats.require("exporting to ONNX", "onnx", "onnxscript", "onnxruntime")
    return target


def write(export: Export, target: Path, progress: Progress) -> Path:
    """Write an export and its card, each whole or not at all; the file comes first, so that no card is without one."""
    with torch.random.fork_rng():  # and not seeded anew, so that random outputs fail their check
        export.make(progress)
        getattr(formats, target.suffix[1:].lower())(export, target)
    storage.write(target.with_name(f"{target.name}.md"), card_of(export, target, formats.TOLERANCE).encode())
    return target
