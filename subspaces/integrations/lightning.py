"""A Lightning callback for the families in a module: fresh batch-norm statistics, and what would be wrong unnoticed."""

import math
from collections.abc import Iterable, Mapping
from typing import Any, cast

from lightning.pytorch import Callback, LightningModule, Trainer, callbacks
from lightning.pytorch.strategies import DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy
from lightning.pytorch.trainer.states import RunningStage
from torch import Tensor

from subspaces.core import batchnorm, checks
from subspaces.core.batchnorm import Forward, recalibrate
from subspaces.core.family import Subspace
from subspaces.errors import ArgumentError
from subspaces.integrations import loaders

AVERAGING = (
    callbacks.StochasticWeightAveraging,
    getattr(callbacks, "WeightAveraging", callbacks.StochasticWeightAveraging),  # since Lightning 2.6
)


class SubspaceCallback(Callback):
    """Recalibrate every family in a module before it is evaluated.

    Before validation, test and prediction and at the end of training, families whose statistics belong to no point get
    those of their midpoint; those with `statistics_every` keep their own. Training is bit for bit what it is without.

    Args:
        loader: the batches for the statistics, by default those of the trainer's train loader.
        batches: use at most this many.
        forward: runs a family on a batch, `forward(net, batch)`, where it takes something else than the first item of a
            tuple, or the items of a dict by their names.
    """

    def __init__(
        self, loader: Iterable[Any] | None = None, batches: int | None = None, forward: Forward | None = None
    ) -> None:
        if batches is not None:
            checks.whole("batches", batches, 1, beside=", or None for all of them")
        self.loader, self.batches, self.forward, self.averaging = loader, batches, forward, False

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if isinstance(trainer.strategy, (DeepSpeedStrategy, FSDPStrategy, ModelParallelStrategy)):
            raise ArgumentError(
                f"strategy {type(trainer.strategy).__name__} cuts the vertices of a family from each other: use "
                "strategy='ddp', or subspaces.distribute in a loop of your own"
            )
        every: list[Callback] = trainer.callbacks  # type: ignore[attr-defined]
        averaging = [index for index, each in enumerate(every) if isinstance(each, AVERAGING)]
        self.averaging = bool(averaging)
        if averaging and averaging[-1] > every.index(self):
            name = type(every[averaging[-1]]).__name__
            raise ArgumentError(
                f"SubspaceCallback comes before {name}, whose average would be evaluated with the batch-norm "
                f"statistics of other weights: callbacks=[{name}(…), SubspaceCallback()]"
            )

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        for name, family in families(pl_module).items():
            for optimizer in trainer.optimizers:
                _check_decay(name, family, optimizer.param_groups)

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            self.refresh(trainer, pl_module)

    def refresh(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Recalibrate the families whose statistics belong to no point."""
        theirs: Any = trainer.train_dataloader
        several = isinstance(theirs, (Mapping, list, tuple))
        loader = self.loader if self.loader is not None else None if several else theirs
        for name, family in families(pl_module).items():
            seen = batchnorm.batches(family.template)
            fresh = family.statistics_every or (seen and family.is_calibrated)
            if seen is None or (fresh and not self.averaging):  # an average has counts, and other weights
                continue
            if loader is not None:
                self._recalibrate(family, loader, trainer)
            elif not family.is_calibrated:
                what = "several train loaders" if several else "no train loader"
                raise ArgumentError(
                    f"the batch-norm statistics of {name!r} belong to no point of the family, and the trainer has "
                    f"{what}: pass one, SubspaceCallback(loader=train_loader)"
                )

    on_test_epoch_start = on_predict_epoch_start = on_train_end = refresh

    def _recalibrate(self, family: Subspace, loader: Iterable[Any], trainer: Trainer) -> None:
        limits = (trainer.num_training_batches if self.loader is None else math.inf, self.batches or math.inf)
        tracked = batchnorm.tracked(family.template).values()
        statistics = {id(buffer) for norm in tracked for buffer in norm.buffers()} | {id(family.calibrated)}
        others = [(buffer, buffer.clone()) for buffer in family.buffers() if id(buffer) not in statistics]
        stage, trainer.state.stage = trainer.state.stage, RunningStage.TRAINING  # which hooks for batches may ask
        try:
            with loaders.read_apart(loader, family.device) as twin, trainer.precision_plugin.forward_context():
                batches = (_moved(batch, trainer) for batch in twin)
                limit = None if min(limits) == math.inf else int(min(limits))
                recalibrate(family, batches, batches=limit, forward=self.forward)
        finally:
            trainer.state.stage = stage
        for buffer, old in others:  # which a pass in train mode may change too
            buffer.copy_(old)
        for value in (value for norm in tracked for value in (norm.running_mean, norm.running_var)):
            if value is not None:  # each process has seen its own share of the batches
                value.copy_(cast(Tensor, trainer.strategy.reduce(value, reduce_op="mean")))


def families(module: LightningModule) -> dict[str, Subspace]:
    """Return every family in a module by its name, without the names of what wraps it."""
    found: dict[str, Subspace] = {}
    for name, part in module.named_modules():
        if isinstance(part, Subspace):
            short = ".".join(each for each in name.split(".") if each not in ("_orig_mod", "module")) or "family"
            found[name if short in found else short] = part
    return found


def _check_decay(name: str, family: Subspace, groups: list[dict[str, Any]]) -> None:
    """Refuse groups that exclude parameters from weight decay, but not those of the family."""
    penalised = {id(family.omega[group.name]): group.penalised for group in family.layout.groups}
    kinds = [{penalised[id(each)] for each in group["params"] if id(each) in penalised} for group in groups]
    excludes = any(not kind and not group.get("weight_decay") for kind, group in zip(kinds, groups, strict=True))
    for kind, group in zip(kinds, groups, strict=True):
        if excludes and len(kind) == 2 and group.get("weight_decay"):
            raise ArgumentError(
                "configure_optimizers excludes parameters from weight decay, but not the norms and biases of the "
                f"family {name!r}: they are one parameter, omega.others, with two dimensions. Give the optimiser "
                f"self.{name}.parameter_groups(others={{'weight_decay': 0}})"
            )


def _moved(batch: Any, trainer: Trainer) -> Any:
    """Return a batch as a training step would get it."""
    batch = trainer.lightning_module._on_before_batch_transfer(trainer.precision_plugin.convert_input(batch))
    return trainer.strategy.batch_to_device(batch)
