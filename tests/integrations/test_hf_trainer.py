"""`SubspaceTrainer`: the penalty, decay, statistics, evaluation at the midpoint, and checkpoints of a family."""

import copy
import inspect
import pickle
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("accelerate", reason="accelerate is not installed, which transformers' Trainer needs")

from hf_models import (
    Normed,
    answered,
    answerer,
    arguments,
    assert_same,
    classified,
    classifier,
    continued,
    language_model,
    seeded,
    vertices,
    weights,
)
from torch.testing import assert_close
from transformers import Trainer, TrainerCallback

import subspaces as ss
from subspaces.integrations.transformers import SubspaceTrainer

ONE_STEP: dict[str, Any] = {
    "max_steps": 1,
    "optim": "sgd",
    "learning_rate": 1.0,
    "lr_scheduler_type": "constant",
    "max_grad_norm": 0.0,
    "per_device_train_batch_size": 2,
}


def own_loss(outputs: Any, labels: Tensor, num_items_in_batch: Any = None) -> Tensor:
    return nn.functional.cross_entropy(outputs.logits, labels, reduction="sum") / num_items_in_batch


def stepped(folder: Path, make: Any, data: Any, beta: float, batches: int, **options: Any) -> ss.Subspace:
    """Return a family after one step, of so many batches."""
    family = seeded(make)
    settings = arguments(folder, gradient_accumulation_steps=batches, **ONE_STEP)
    SubspaceTrainer(family, settings, train_dataset=data(), beta=beta, **options).train()
    return family


@pytest.mark.parametrize(
    ("make", "data", "options", "batches"),
    [
        (classifier, classified, {}, 1),
        (language_model, continued, {}, 3),
        (Normed, classified, {}, 3),
        (classifier, classified, {"compute_loss_func": own_loss}, 3),
    ],
    ids=["classifier", "language model", "no keywords", "own loss"],
)
def test_a_step_has_the_penalty_once(tmp_path: Path, make: Any, data: Any, options: Any, batches: int) -> None:
    without, with_it = (stepped(tmp_path, make, data, beta, batches, **options) for beta in (0.0, 0.3))
    start = seeded(make)
    assert not torch.equal(weights(without), weights(start))
    start.penalty(0.3).backward()
    expected = [start.omega[group.name].grad for group in start.layout.groups if group.penalised]
    assert_close(weights(without) - weights(with_it), torch.cat(expected, 1), atol=1e-6, rtol=1e-3)
    assert_close(without.omega["others"], with_it.omega["others"], atol=1e-6, rtol=0)


def test_weights_decay_and_norms_and_biases_do_not(tmp_path: Path) -> None:
    family, settings = seeded(classifier), arguments(tmp_path, weight_decay=0.1)
    decaying, others = SubspaceTrainer(family, settings).create_optimizer().param_groups
    assert [(group["weight_decay"], len(group["params"])) for group in (decaying, others)] == [(0.1, 2), (0.0, 1)]
    names = [group.name for group in family.layout.groups if group.penalised]
    assert {id(parameter) for parameter in decaying["params"]} == {id(family.omega[name]) for name in names}
    assert others["params"][0] is family.omega["others"]


def test_groups_of_a_family_are_those_of_its_optimiser(tmp_path: Path) -> None:
    def get_groups(model: nn.Module) -> list[dict[str, Any]]:
        parts: dict[bool, list[Any]] = {False: [], True: []}
        for name, parameter in model.named_parameters():
            parts[name.startswith("classifier")].append(parameter)
        return [{"params": parts[False]}, {"params": parts[True], "lr": 0.5, "weight_decay": 0.0}]

    family, settings = ss.Subspace(classifier(), ss.Line(), groups=get_groups), arguments(tmp_path, weight_decay=0.1)
    body, head = SubspaceTrainer(family, settings).create_optimizer().param_groups
    assert (body["weight_decay"], body["lr"]) == (0.1, settings.learning_rate)
    assert (head["weight_decay"], head["lr"]) == (0.0, 0.5)


@pytest.mark.parametrize(
    ("make", "labels"),
    [(classifier, ["labels"]), (answerer, ["start_positions", "end_positions"]), (language_model, ["labels"])],
)
def test_columns_and_labels_are_those_of_the_network(make: Any, labels: list[str], tmp_path: Path) -> None:
    """Also where the trainer calls a function for its model."""
    settings = arguments(tmp_path, include_num_input_tokens_seen="all", gradient_checkpointing=True)
    options: list[dict[str, Any]] = [{"model": seeded(make)}, {"model_init": lambda: seeded(make)}]
    for given in options:
        trainer = SubspaceTrainer(
            **given, args=settings, train_dataset={answerer: answered}.get(make, classified)()[:4]
        )
        assert trainer.label_names == labels
        trainer._set_signature_columns_if_needed()
        assert {*inspect.signature(make().forward).parameters, *labels} <= {*trainer._signature_columns}
        copy.deepcopy(pickle.loads(pickle.dumps(trainer.model)))


def test_it_learns_and_answers_at_the_midpoint(tmp_path: Path) -> None:
    family, data = seeded(classifier), classified()
    settings = arguments(tmp_path, max_steps=60, learning_rate=0.01, bf16=True)

    def metrics(found: Any) -> dict[str, float]:
        return {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())}

    trainer = SubspaceTrainer(family, settings, train_dataset=data, eval_dataset=data, compute_metrics=metrics)
    trainer.train()
    assert trainer.evaluate()["eval_accuracy"] > 0.9
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = family.midpoint().eval()(input_ids=torch.stack([row["input_ids"] for row in data])).logits
    assert_close(torch.tensor(trainer.predict(data).predictions), expected.float(), atol=0.05, rtol=0.05)
    assert weights(family).dtype == torch.float32


def test_statistics_are_made_before_evaluation_and_training_does_not_notice(tmp_path: Path) -> None:
    family, data = seeded(Normed), classified()
    trainer = SubspaceTrainer(family, arguments(tmp_path), train_dataset=data, statistics_batches=5)
    trainer.train()
    assert not family.is_calibrated
    before = torch.get_rng_state(), family.rng.clone(), trainer.accelerator.gradient_state.active_dataloader
    trainer.calibrate()
    assert family.is_calibrated
    assert torch.equal(torch.get_rng_state(), before[0])
    assert torch.equal(family.rng, before[1])
    assert trainer.accelerator.gradient_state.active_dataloader is before[2]
    midpoint = ss.recalibrate(family.midpoint(), trainer.get_statistics_dataloader(), batches=5).eval()
    family.keep_statistics(known=False)
    found = torch.tensor(trainer.predict(data).predictions)
    with torch.no_grad():  # dropout comes after the norm
        assert_close(found, midpoint(torch.stack([row["input_ids"] for row in data]))["logits"])


def test_a_stopped_run_continues_bit_for_bit(tmp_path: Path) -> None:
    make, data = Normed, classified
    settings: dict[str, Any] = {"max_steps": 8, "gradient_accumulation_steps": 2, "logging_steps": 1, "eval_steps": 2}
    settings |= {"save_strategy": "steps", "save_steps": 3, "eval_strategy": "steps", "learning_rate": 0.01}
    made = partial(SubspaceTrainer, train_dataset=data(), eval_dataset=data()[:8])
    whole = made(seeded(make, ss.Simplex(3)), arguments(tmp_path / "whole", **settings))
    whole.train()
    stopped = made(seeded(make, ss.Simplex(3)), arguments(tmp_path / "stopped", **settings))
    stopped.add_callback(Stop(5))
    stopped.train()
    torch.manual_seed(5)  # another process knows nothing of this one
    again = made(ss.Subspace(make, ss.Simplex(3)), arguments(tmp_path / "stopped", **settings))
    again.train(resume_from_checkpoint=True)
    assert again.state.global_step == 8
    assert_same(dict(again.model.state_dict()), dict(whole.model.state_dict()))
    assert logged(again) == logged(whole)
    loaded = ss.load(tmp_path / "whole" / "checkpoint-6" / "family.safetensors", make)
    assert not torch.equal(weights(loaded), weights(whole.model))


class Stop(TrainerCallback):  # type: ignore[misc]
    """Stops training after a step, as if it had been killed there."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        control.should_training_stop = state.global_step >= self.step
        control.should_save &= state.global_step < self.step


def logged(trainer: Trainer) -> list[tuple[Any, ...]]:
    """Return all that is logged but times."""
    lines = [line for line in trainer.state.log_history if "train_runtime" not in line]
    return [tuple(line.get(key) for key in ("step", "loss", "grad_norm", "eval_loss")) for line in lines]


def test_the_best_family_is_loaded_at_the_end(tmp_path: Path) -> None:
    family, data, scores = seeded(classifier), classified(), iter([0.9, 0.2])
    steps = {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "steps", "eval_steps": 1}
    best_of = {"load_best_model_at_end": True, "metric_for_best_model": "score"}
    settings = arguments(tmp_path, max_steps=2, **best_of, **steps)
    score = {"compute_metrics": lambda _: {"score": next(scores)}}
    SubspaceTrainer(family, settings, train_dataset=data, eval_dataset=data[:4], **score).train()
    best = ss.load(tmp_path / "checkpoint-1" / "family.safetensors", classifier)
    assert_same(vertices(family), vertices(best))
    assert (tmp_path / "checkpoint-1" / "config.json").is_file()


def test_what_cannot_be_trained_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"got a BertForSequenceClassification: expected a Subspace"):
        SubspaceTrainer(classifier(), arguments(tmp_path))
    with pytest.raises(ValueError, match="beta=-1: expected a number of at least 0"):
        SubspaceTrainer(seeded(classifier), arguments(tmp_path), beta=-1)
    (tmp_path / "checkpoint-1").mkdir()
    with pytest.raises(FileNotFoundError, match=r"has no family.safetensors: expected a checkpoint that Subspace"):
        SubspaceTrainer(seeded(classifier), arguments(tmp_path), train_dataset=classified()).train(
            resume_from_checkpoint=True
        )
