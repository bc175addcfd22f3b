"""What a family in a LightningModule needs of the trainer: fresh batch-norm statistics, and a look at its vertices."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.trainer.states import RunningStage
from lightning.pytorch.utilities.seed import isolate_rng
from torch import Tensor, nn

from subspaces.core import batchnorm, checks
from subspaces.core.batchnorm import Forward, recalibrate
from subspaces.core.family import Subspace
from subspaces.errors import ArgumentError
from subspaces.integrations import loaders


class SubspaceCallback(Callback):
    """Recalibrates every family in a module before it is evaluated, and logs how far apart its vertices are.

    Before validation, test and prediction and at the end of training, families whose statistics belong to no point get
    those of their midpoint; the ones with `statistics_every` keep their own. Once an epoch it logs `NAME/l2` and
    `NAME/cos2`, the mean distance and cos^2 of all pairs of vertices. Training goes on as without it, bit by bit.

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
        if forward is not None:
            checks.function("forward", forward, "a function of (net, batch)")
        self.loader = loader
        self.batches = batches
        self.forward = forward

    def on_validation_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if not trainer.sanity_checking:
            self.refresh(trainer, pl_module)

    def on_test_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.refresh(trainer, pl_module)

    def on_predict_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.refresh(trainer, pl_module)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.refresh(trainer, pl_module)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.barebones:
            return  # it logs nothing
        for name, family in families(pl_module).items():
            if family.shape.vertices > 1:
                apart = ~torch.eye(family.shape.vertices, dtype=torch.bool, device=family.device)
                for kind, each in family.distances()._asdict().items():
                    pl_module.log(f"{name}/{kind}", each[apart].mean().float(), sync_dist=True)

    def refresh(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Recalibrate the families whose statistics belong to no point."""
        for name, family in families(pl_module).items():
            seen = batchnorm.batches(family.template)
            if seen is None or family.statistics_every or (seen and seen == family.calibrated):
                continue
            several = isinstance(trainer.train_dataloader, (Mapping, list, tuple))
            theirs = None if several else trainer.train_dataloader
            loader = theirs if self.loader is None else self.loader
            if loader is not None:
                self._recalibrate(family, loader, trainer)
            elif seen != family.calibrated:
                what = "several train loaders" if several else "no train loader"
                raise ArgumentError(
                    f"the batch-norm statistics of {name!r} belong to no point of the family, and the trainer has "
                    f"{what} to make them from: pass one, SubspaceCallback(loader=train_loader)"
                )

    def _recalibrate(self, family: Subspace, loader: Iterable[Any], trainer: Trainer) -> None:
        most = trainer.num_training_batches if self.loader is None else math.inf
        limit = min(most, math.inf if self.batches is None else self.batches)
        tracked = batchnorm.tracked(family.template).values()
        statistics = {id(buffer) for norm in tracked for buffer in norm.buffers()} | {id(family.calibrated)}
        others = [(buffer, buffer.clone()) for buffer in family.buffers() if id(buffer) not in statistics]
        with isolate_rng(), _training(trainer):
            with loaders.read_apart(loader) as twin, trainer.precision_plugin.forward_context():
                batches = (_moved(batch, trainer) for batch in twin)
                recalibrate(family, batches, batches=None if limit == math.inf else int(limit), forward=self.forward)
            for buffer, old in others:  # which a pass in train mode may change too
                buffer.copy_(old)
            for value in (value for norm in tracked for value in (norm.running_mean, norm.running_var)):
                if value is not None:  # each process has seen its own share of the batches
                    value.copy_(cast(Tensor, trainer.strategy.reduce(value, reduce_op="mean")))


def families(module: nn.Module) -> dict[str, Subspace]:
    """Return every family in a module by its name, without the names of what wraps it."""
    found: dict[str, Subspace] = {}
    for name, part in module.named_modules():
        if isinstance(part, Subspace):
            short = ".".join(each for each in name.split(".") if each not in ("_orig_mod", "module")) or "family"
            found[name if short in found else short] = part
    return found


@contextmanager
def _training(trainer: Trainer) -> Iterator[None]:
    """Let a module's hooks for batches see that these are for training."""
    stage, trainer.state.stage = trainer.state.stage, RunningStage.TRAINING
    try:
        yield
    finally:
        trainer.state.stage = stage


def _moved(batch: Any, trainer: Trainer) -> Any:
    """Return a batch as a training step would get it."""
    batch = trainer.lightning_module._on_before_batch_transfer(trainer.precision_plugin.convert_input(batch))
    return trainer.strategy.batch_to_device(batch)
