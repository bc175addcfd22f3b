"""Hugging Face's `Trainer` for a family: its columns, the penalty, weight decay, batch-norm statistics, and files."""

import inspect
from collections.abc import Sized
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset
from transformers import Trainer
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from transformers.trainer import TRAINING_ARGS_NAME
from transformers.utils import can_return_loss, find_labels

from subspaces.core import checks, storage
from subspaces.core.batchnorm import recalibrate
from subspaces.core.family import Subspace
from subspaces.errors import ArgumentError
from subspaces.integrations import loaders

FILE = "family.safetensors"  # of a checkpoint; `subspaces.load` reads it
ASKED = ("config", "main_input_name", "loss_type", "gradient_checkpointing_enable")
"""What `Trainer` asks a model for, none of which depends on the weights."""


class SubspaceTrainer(Trainer):
    """Train a family of Hugging Face models as `Trainer` trains one of them.

    Every step adds `family.penalty(beta)` to the loss and decays the weights, but not norms and biases. Evaluation and
    prediction are those of the midpoint, with batch-norm statistics made for it. Checkpoints hold `family.safetensors`,
    from which `train(resume_from_checkpoint=True)` continues as if it had not been stopped.

    Args:
        model, args, others, options: as `Trainer` takes them; the model is a `Subspace`, also that of `model_init`.
        beta: the strength of the penalty.
        shared: False leaves the frozen parameters, such as the base of adapters, out of the files.
        statistics_batches: batch-norm statistics are made of at most this many training batches; None: of all.

    Example:
        >>> family = Subspace(model, Line())
        >>> trainer = SubspaceTrainer(family, TrainingArguments("out"), train_dataset=data, beta=1.0)
        >>> trainer.train()
        >>> family.midpoint().save_pretrained("midpoint")
    """

    label_smoother: Any
    optimizer: Any

    def __init__(
        self,
        model: nn.Module | None = None,
        args: Any = None,
        *others: Any,
        beta: float = 1.0,
        shared: bool = True,
        statistics_batches: int | None = 100,
        **options: Any,
    ) -> None:
        if checks.number("beta", beta) < 0:
            raise ArgumentError(f"beta={checks.shown(beta)}: expected a number of at least 0")
        if statistics_batches is not None:
            checks.whole("statistics_batches", statistics_batches, 1, beside=", or None for all")
        self.beta, self.shared, self.statistics_batches = beta, shared, statistics_batches
        super().__init__(None if model is None else _with_attributes(model), args, *others, **options)
        self._inspect(self.model.template)

    def call_model_init(self, trial: Any = None) -> nn.Module:
        return _with_attributes(super().call_model_init(trial))

    def _inspect(self, network: nn.Module) -> None:
        """Take from the network, below an adapter of peft, what `Trainer` takes from a model's class and forward."""
        base = getattr(network, "get_base_model", None)
        inner = base() if callable(base) else network
        inputs = inspect.signature(inner.forward).parameters
        self.label_names = find_labels(type(inner)) if self.args.label_names is None else self.args.label_names
        self.can_return_loss = can_return_loss(type(inner))
        self._signature_columns = [*inputs, "label", "label_ids", *self.label_names]
        any_keyword = any(each.kind is Parameter.VAR_KEYWORD for each in inputs.values())
        self.model_accepts_loss_kwargs = getattr(inner, "accepts_loss_kwargs", any_keyword)
        smoother: Any = self.label_smoother
        if smoother is not None and type(inner).__name__ in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.values():
            self.label_smoother = partial(smoother, shift_labels=True)

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        """Return the names of the vertices' weights: not those of norms and biases."""
        family: Subspace = self.model
        decaying = {id(family.omega[group.name]) for group in family.layout.groups if group.penalised}
        return [name for name, parameter in model.named_parameters() if id(parameter) in decaying]

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """Make the optimiser of the arguments; a family that was made with `groups=` has its groups there."""
        family: Subspace = self.model
        if self.optimizer is None and family.options is not None:
            kind, options = self.optimizer_cls_and_kwargs or self.get_optimizer_cls_and_kwargs(self.args, family)
            groups = [{"weight_decay": self.args.weight_decay, **group} for group in family.parameter_groups()]
            self.optimizer = kind(groups, **options)
        given = () if model is None else (model,)  # which transformers 5.0 has not
        found: torch.optim.Optimizer = super().create_optimizer(*given)
        return found

    def compute_loss(
        self, model: nn.Module, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Return the model's loss, in training with the penalty."""
        loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
        if model.training:
            loss = loss + self._penalty(num_items_in_batch)
        return (loss, outputs) if return_outputs else loss

    def _penalty(self, num_items_in_batch: Any) -> Tensor:
        """Return this batch's share of the penalty, which a step has once, however many batches it accumulates."""
        scaled = getattr(self, "loss_is_scaled_for_ga", None)
        if scaled is None:  # as `Trainer.training_step` finds out whether it has to divide the loss
            counted = self.model_accepts_loss_kwargs and num_items_in_batch is not None
            scaled = counted or self.compute_loss_func is not None
        penalty: Tensor = self.model.penalty(self.beta)
        return penalty / self.current_gradient_accumulation_steps if scaled else penalty

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> Any:
        """Run the midpoint, with batch-norm statistics of its own."""
        if not self.model.is_calibrated and self.train_dataset is not None:
            self.calibrate()
        return super().evaluation_loop(*args, **kwargs)

    def calibrate(self) -> None:
        """Make the batch-norm statistics those of the midpoint, without a trace in training."""
        family: Subspace = self.model
        with loaders.read_apart(self.get_statistics_dataloader(), family.device, self.data_collator) as loader:
            recalibrate(family, loader, batches=self.statistics_batches)

    def get_statistics_dataloader(self) -> DataLoader[Any]:
        """Return batches of the training data for batch-norm statistics, in an order of their own."""
        data, size = self.train_dataset, self.args.train_batch_size
        return DataLoader(
            data,
            batch_size=size,
            shuffle=None if isinstance(data, IterableDataset) else True,
            drop_last=not isinstance(data, Sized) or len(data) >= size,  # a single example has no variance
            collate_fn=self._get_collator_with_removed_columns(self.data_collator),
            generator=torch.Generator().manual_seed(self.args.seed),
        )

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        folder = Path(output_dir or self.args.output_dir)
        folder.mkdir(parents=True, exist_ok=True)
        storage.save(self.model, folder / FILE, shared=self.shared)
        tokenizer = self.processing_class or getattr(self.data_collator, "tokenizer", None)
        parts: list[Any] = [getattr(self.model, "config", None), tokenizer]
        for part in parts:
            if hasattr(part, "save_pretrained"):
                part.save_pretrained(folder)
        torch.save(self.args, folder / TRAINING_ARGS_NAME)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        file = Path(resume_from_checkpoint) / FILE
        if not file.is_file():
            raise FileNotFoundError(
                f"{resume_from_checkpoint} has no {FILE}: expected a checkpoint that SubspaceTrainer wrote"
            )
        storage.restore(self.model, file)

    def _load_best_model(self) -> None:
        self._load_from_checkpoint(self.state.best_model_checkpoint)


def _with_attributes(model: Any) -> Subspace:
    """Return a family, with what `Trainer` asks its network for."""
    if not isinstance(model, Subspace):
        kind = type(model).__name__
        raise ArgumentError(f"SubspaceTrainer got a {kind}: expected a Subspace, such as Subspace(model, Line())")
    for name in ASKED:
        if hasattr(model.template, name) and not hasattr(model, name):
            setattr(model, name, getattr(model.template, name))
    return model
