"""Families in Lightning: a callback for the ones a module holds, and a module that makes a family of another."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, cast

import torch
from lightning.pytorch import Callback, LightningModule
from lightning.pytorch.core.hooks import CheckpointHooks, DataHooks, ModelHooks
from torch import Tensor, nn

from subspaces.core import batchnorm, checks, functional
from subspaces.core.alpha import Alpha
from subspaces.core.family import Subspace
from subspaces.core.shapes import Shape
from subspaces.errors import ArgumentError
from subspaces.integrations import optimizers
from subspaces.integrations.lightning_callback import SubspaceCallback

__all__ = ["LightningSubspace", "SubspaceCallback"]

Optimizers = Callable[[Subspace], Any]
STEPS = ("training_step", "validation_step", "test_step", "predict_step")
OUTSIDE = ("backward", "configure_gradient_clipping", "lr_scheduler_step", "optimizer_step", "optimizer_zero_grad")
REFUSED = ("configure_model", "configure_sharded_model")


class LightningSubspace(LightningModule):
    """A family of your own LightningModule: its steps, hooks, loaders and optimisers are as you wrote them.

    A training step runs at a drawn point, and the penalty is added to its loss; all other steps and hooks run at the
    midpoint. Weights that a hook writes are not kept. A `SubspaceCallback` is added where the trainer has none.

    Args:
        module: a LightningModule, or a function that makes one.
        shape: `Line()`, `Bezier(bends)`, `Simplex(m)`, or any other `Shape`.
        beta: the strength of the penalty.
        optimizers: makes what `configure_optimizers` returns from the family, where that of the module does not do.
        hparams: the hyperparameters to log and save, by default those of the module.
        options: those of `Subspace`.

    Example:
        >>> module = LightningSubspace(lambda: MyModule(lr=0.1), Line())
        >>> Trainer(max_epochs=10).fit(module, loader, held_out)
        >>> net = module.midpoint()
    """

    plain_class: ClassVar[type["LightningSubspace"] | None] = None
    """The class without the methods of the module."""

    def __init__(
        self,
        module: LightningModule | Callable[[], LightningModule],
        shape: Shape,
        beta: float = 1.0,
        *,
        optimizers: Optimizers | None = None,
        hparams: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        if checks.number("beta", beta) < 0:
            raise ArgumentError(f"beta={checks.shown(beta)}: expected a number of at least 0")
        if options.get("statistics_every") is not None:
            raise ArgumentError(
                "statistics_every would run a training step twice: leave it out, the module's SubspaceCallback makes "
                "the statistics before each validation"
            )
        if optimizers is not None:
            checks.function("optimizers", optimizers, "a function of the family")
        self.family = Subspace(module, shape, **options)
        self.beta = beta
        self._make_optimizers = optimizers
        _check(self.family.template)
        passed = {"module": module, "shape": shape, "beta": beta, "optimizers": optimizers, **options}
        shown = self.inner.hparams if hparams is None else hparams
        known = [key for key in shown if key in passed and shown[key] is passed[key]]  # by load_from_checkpoint
        self.save_hyperparameters({key: shown[key] for key in shown if key not in known})
        self._hparams_name = "hparams"  # the argument by which it passes them again
        self.__class__ = _with_methods_of(type(self.inner), self.plain_class or type(self))

    @property
    def inner(self) -> LightningModule:
        """The module without its weights, which each step fills with those of a point."""
        return cast(LightningModule, self.family.template)

    def midpoint(self) -> LightningModule:
        """Return the module in the middle of the subspace, an ordinary one: recalibrate it if it has batch norm."""
        return self.at(self.family.shape.midpoint())

    def at(self, alpha: Alpha, outside: bool = False) -> LightningModule:
        """Return the module at alpha, as `Subspace.at` does."""
        found = cast(LightningModule, self.family.at(alpha, outside))
        found._metric_attributes = None  # it finds its metrics by where they are in memory
        return found

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        with self._attached():
            return self.family(*args, **kwargs)

    def configure_optimizers(self) -> Any:
        if self._make_optimizers is not None:
            return self._make_optimizers(self.family)
        with self._attached() as inner, optimizers.standing_in(self.family) as stand_ins:
            configured = inner.configure_optimizers()
        for optimizer in optimizers.found_in(configured):
            optimizers.give(optimizer, self.family, stand_ins)
        return configured

    def configure_callbacks(self) -> Sequence[Callback]:
        with self._attached() as inner:
            found = inner.configure_callbacks()
        callbacks = [found] if isinstance(found, Callback) else list(found)
        known: list[Callback] = [*callbacks, *self.trainer.callbacks]  # type: ignore[attr-defined]
        if not any(isinstance(each, SubspaceCallback) for each in known):
            callbacks.append(SubspaceCallback())
        return callbacks

    @contextmanager
    def _attached(self) -> Iterator[LightningModule]:
        """Let the inner module see the trainer, for `self.log` and all the rest."""
        inner = self.inner
        before = inner._trainer, inner._current_fx_name
        inner.trainer, inner._current_fx_name = self._trainer, self._current_fx_name
        try:
            yield inner
        finally:
            inner.trainer, inner._current_fx_name = before

    def _step(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a method of the inner module: a step as a call of the family, a hook with the midpoint's weights."""
        with self._attached() as inner:
            method = functools.partial(getattr(inner, name), *args, **kwargs)
            if name not in STEPS and not (hasattr(ModelHooks, name) and "_model_" not in name):
                return method()
            with _answering(inner, method):
                output = self.family() if name in STEPS else functional.call(inner, self._middle(), (), {})
        return self._penalised(output) if name == "training_step" else output

    @torch.no_grad()
    def _middle(self) -> dict[str, Tensor]:
        """Return the weights of the midpoint."""
        weights = self.family.theta(self.family.coefficients(self.family.shape.midpoint()))
        return {name: weights[name] for name in self.family.layout.places}

    def _penalised(self, output: Any) -> Any:
        """Return what a training step gave with the penalty in its loss."""
        if isinstance(output, Tensor):
            return output + self.family.penalty(self.beta)
        if isinstance(output, Mapping) and "loss" in output:
            return {**output, "loss": output["loss"] + self.family.penalty(self.beta)}
        return output  # None leaves the batch out

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Copy and pickle as the class that has a name to be found by."""
        return object.__new__, (self.plain_class,), self.__getstate__()

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.__class__ = _with_methods_of(type(self.inner), type(self))


def _check(module: nn.Module) -> None:
    """Refuse what is no LightningModule, or cannot be trained as a family."""
    instead = "hold the family in a module of your own, self.net = ss.Subspace(network, shape), with SubspaceCallback()"
    if not isinstance(module, LightningModule):
        raise ArgumentError(
            f"LightningSubspace got a {type(module).__name__}: expected a LightningModule; else {instead}"
        )
    if not module.automatic_optimization:
        raise ArgumentError(
            f"{type(module).__name__} has automatic_optimization=False, and the penalty is added to a loss that the "
            f"trainer minimises: leave it True, or {instead}"
        )
    if batchnorm.tracked(module) and type(module).forward is LightningModule.forward:
        raise ArgumentError(
            f"{type(module).__name__} has batch norm and no forward, by which its statistics are made: give it one, "
            "such as def forward(self, x): return self.net(x)"
        )
    for name in REFUSED:
        if getattr(type(module), name) is not getattr(LightningModule, name):
            raise ArgumentError(
                f"{type(module).__name__} makes its layers in {name}, when a family has been made: make them in "
                f"__init__, or {instead}"
            )


@contextmanager
def _answering(module: nn.Module, method: Callable[[], Any]) -> Iterator[None]:
    """Let the next call of a module run a method of it; calls within that method run its forward, as ever."""
    own = {key: value for key, value in vars(module).items() if key == "forward"}

    def restore() -> None:
        vars(module).pop("forward", None)
        vars(module).update(own)

    def once() -> Any:
        restore()
        return method()

    vars(module)["forward"] = once
    try:
        yield
    finally:
        restore()


_known: dict[tuple[type, type], type["LightningSubspace"]] = {}


def _with_methods_of(kind: type[LightningModule], base: type[LightningSubspace]) -> type[LightningSubspace]:
    """Return a class with the steps and hooks that `kind` has of its own, since the trainer asks which there are."""
    if (kind, base) in _known:
        return _known[kind, base]
    hooks = [name for part in (ModelHooks, DataHooks, CheckpointHooks) for name in vars(part) if name[0] != "_"]
    methods = {}
    for name in (*STEPS, *OUTSIDE, *hooks):
        ours, theirs, default = (getattr(each, name) for each in (base, kind, LightningModule))
        if theirs is not default and ours is default:
            methods[name] = _passed_on(name, theirs)
    made = type(base.__name__, (base,), {"__module__": base.__module__, "plain_class": base, **methods})
    return _known.setdefault((kind, base), made)


def _passed_on(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def step(self: LightningSubspace, *args: Any, **kwargs: Any) -> Any:
        return self._step(name, args, kwargs)

    return step
