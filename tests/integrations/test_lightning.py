"""Families in Lightning's trainer: statistics, training bit by bit, optimisers, checkpoints."""

import copy
import pickle
import re
import runpy
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler

import subspaces as ss
from subspaces.core import batchnorm

pytest.importorskip("lightning", reason="needs lightning: pip install '.[lightning]'")

import lightning_modules as modules
from lightning.pytorch import Callback, LightningModule
from lightning_modules import Holding, Plain, loader, trainer

from subspaces.integrations.lightning import LightningSubspace, SubspaceCallback

pytestmark = [
    pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings(r"ignore:The '\w+' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
]
HELD_OUT = loader(seed=1, shuffle=False)
EXAMPLE = Path(__file__).parents[2] / "examples" / "with_lightning.py"


class Seeding(Callback):
    """Torch's own random numbers, which Lightning does not save, are those of the step."""

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        torch.manual_seed(batch_idx)


def holding(**options: Any) -> Holding:
    torch.manual_seed(3)
    return Holding(**options)


def wrapped(kind: type[LightningModule] = Plain, **options: Any) -> LightningSubspace:
    torch.manual_seed(3)
    return LightningSubspace(kind, ss.Line(), **{"seed": 1, **options})


def family(module: LightningModule) -> ss.Subspace:
    found: Any = module.net if isinstance(module, Holding) else module.family
    return found  # type: ignore[no-any-return]


def same(first: nn.Module, second: nn.Module) -> bool:
    mine, theirs = first.state_dict(), second.state_dict()
    return mine.keys() == theirs.keys() and all(torch.equal(mine[name], theirs[name]) for name in mine)


BOTH = pytest.mark.parametrize("make", [holding, wrapped])

# Batch-norm statistics


@BOTH
def test_validation_is_that_of_the_recalibrated_midpoint(make: Any) -> None:
    module, batches = make(), loader(shuffle=False)
    run = trainer(callbacks=[SubspaceCallback()])
    run.fit(module, batches, HELD_OUT)
    net = ss.recalibrate(family(module).midpoint(), batches)
    assert float(run.callback_metrics["accuracy"]) == pytest.approx(balanced(net) if make is wrapped else plain(net))
    norm = next(iter(batchnorm.tracked(family(module).template).values()))
    expected = next(iter(batchnorm.tracked(net).values()))
    assert torch.equal(norm.running_mean, expected.running_mean)
    assert torch.equal(norm.running_var, expected.running_var)


def plain(net: nn.Module) -> float:
    return modules.total(net, HELD_OUT)


def balanced(net: nn.Module) -> float:
    """Return the mean accuracy over the classes, as torchmetrics has it."""
    x, y = HELD_OUT.dataset.tensors  # type: ignore[attr-defined]
    answers = net.eval()(x).argmax(1)
    return float(torch.stack([(answers[y == k] == k).float().mean() for k in range(3)]).mean())


class Idle(SubspaceCallback):
    """Does nothing, so that a family of a module adds none that does."""

    def refresh(self, trainer: Any, pl_module: Any) -> None: ...

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None: ...


@pytest.mark.filterwarnings("ignore::subspaces.core.stale.StatisticsWarning")  # as it should be without the callback
@pytest.mark.parametrize("own", [False, True], ids=["global", "own"])
@BOTH
def test_training_is_the_same_bit_by_bit_with_the_callback(make: Any, own: bool) -> None:
    """With shuffling and dropout, and validations in the middle of an epoch."""
    found = []
    for callback in (SubspaceCallback(), Idle()):
        module, batches = make(), loader(generator=torch.Generator().manual_seed(5) if own else None)
        trainer(callbacks=[callback], val_check_interval=0.5).fit(module, batches, HELD_OUT)
        found.append((family(module), torch.rand(())))
        assert module.training
    (with_it, next_number), (without, other_number) = found
    for name, omega in with_it.omega.items():
        assert torch.equal(omega, without.omega[name])
    assert torch.equal(with_it.rng, without.rng)
    assert torch.equal(next_number, other_number)
    seen = [int(batchnorm.batches(each.template)) for each in (with_it, without)]
    assert seen == [4, 8]  # of one pass over the loader; of two epochs


def test_it_takes_as_many_batches_as_it_may() -> None:
    named = [{"input": x} for x, _ in loader(128)]
    for options, expected in (({"batches": 1}, 1), ({}, 2), ({"loader": loader(128)}, 8), ({"loader": named}, 8)):
        module = holding()
        trainer(callbacks=[SubspaceCallback(**options)], limit_train_batches=2).fit(module, loader())
        assert int(module.net.calibrated) == expected


def test_statistics_are_made_once_for_the_same_weights() -> None:
    module, calls = holding(), []
    callback = SubspaceCallback(forward=lambda net, batch: calls.append(len(batch[0])) or net(batch[0]))
    run = trainer(callbacks=[callback])
    run.fit(module, loader(), HELD_OUT)
    assert calls == [16] * 4 * 2  # two epochs of four batches, nothing at the end of training
    run.validate(module, HELD_OUT, verbose=False)
    assert len(calls) == 8


def test_a_family_that_keeps_its_statistics_fresh_is_left_alone() -> None:
    module = holding(statistics_every=2)
    trainer(callbacks=[SubspaceCallback()]).fit(module, loader(), HELD_OUT)
    assert int(module.net.calibrated) == 5  # the first and every second of eight steps


def test_without_a_train_loader_it_says_what_to_pass() -> None:
    module, batches = holding(), loader()
    trainer().fit(module, batches)
    with pytest.raises(ValueError, match=r"'net' belong to no point.*no train loader.*SubspaceCallback\(loader="):
        trainer(callbacks=[SubspaceCallback()]).validate(module, HELD_OUT, verbose=False)
    trainer(callbacks=[SubspaceCallback(batches)]).validate(module, HELD_OUT, verbose=False)
    assert int(module.net.calibrated) == 4


def test_of_several_train_loaders_one_is_to_be_passed() -> None:
    class Paired(Holding):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            return super().training_step(batch["first"], batch_idx)

    several = {"first": loader(), "second": loader()}
    with pytest.raises(ValueError, match=r"several train loaders.*SubspaceCallback\(loader=train_loader\)"):
        trainer(callbacks=[SubspaceCallback()]).fit(Paired(), several, HELD_OUT)
    trainer(callbacks=[SubspaceCallback(several["first"])]).fit(Paired(), several, HELD_OUT)


def test_batches_go_through_the_hooks_of_the_module_as_in_training() -> None:
    class Moving(Holding):
        def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            return (batch[0] + (100.0 if self.trainer.training else 0.0), batch[1])

    module = Moving()
    trainer(callbacks=[SubspaceCallback()]).fit(module, loader(shuffle=False), HELD_OUT)
    shifted = [x + 100.0 for x, _ in loader(shuffle=False)]
    net = ss.recalibrate(module.net.midpoint(), shifted)
    assert torch.equal(net[1].running_mean, module.net.template[1].running_mean)


def test_buffers_that_are_no_statistics_stay() -> None:
    class Moving(nn.Sequential):
        def __init__(self, *parts: nn.Module) -> None:
            super().__init__(*parts)
            self.register_buffer("steps", torch.zeros(()))

        def forward(self, x: torch.Tensor) -> Any:
            if self.training:
                self.steps.add_(1)
            return super().forward(x)

    class Tracking(Holding):
        def __init__(self) -> None:
            super().__init__()
            self.net = ss.Subspace(Moving(*modules.make_net()), ss.Line())

    module = Tracking()
    before = {name: value.clone() for name, value in module.net.named_buffers() if "steps" in name}
    run = trainer(callbacks=[SubspaceCallback(loader())])
    run.validate(module, HELD_OUT, verbose=False)
    assert int(module.net.calibrated) == 4
    assert len(before) == 1
    assert all(torch.equal(value, module.net.get_buffer(name)) for name, value in before.items())


def test_the_distances_are_logged_once_an_epoch() -> None:
    module = holding()
    run = trainer(callbacks=[SubspaceCallback()])
    run.fit(module, loader())
    expected = module.net.distances()
    assert float(run.callback_metrics["net/l2"]) == pytest.approx(float(expected.l2[0, 1]))
    assert float(run.callback_metrics["net/cos2"]) == pytest.approx(float(expected.cos2[0, 1]))


def test_a_compiled_family_is_found() -> None:
    module = holding()
    bare, module.net = module.net, torch.compile(module.net, backend="eager")
    run = trainer(callbacks=[SubspaceCallback()], max_epochs=1)
    run.fit(module, loader(), HELD_OUT)
    assert int(bare.calibrated) == 4
    assert "net/l2" in run.callback_metrics


@pytest.mark.filterwarnings(r"ignore:It is recommended to use `self.log\('(accuracy|at_zero)'")
@BOTH
def test_two_processes_make_statistics_of_all_batches(
    make: Any, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if torch.cuda.is_initialized():
        pytest.skip("a process with a CUDA device in use cannot be forked")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))  # where Lightning leaves a folder
    module = make()
    run = trainer(callbacks=[SubspaceCallback()], strategy="ddp_fork", devices=2, max_epochs=1, num_sanity_val_steps=0)
    run.fit(module, loader(), HELD_OUT)
    images = modules.data(64)
    shares = [list(DistributedSampler(images, 2, rank)) for rank in (0, 1)]
    parts = [part for share in shares for part in images.tensors[0][share].split(16)]
    net = ss.recalibrate(family(module).midpoint(), parts)
    found, expected = (next(iter(batchnorm.tracked(each).values())) for each in (family(module).template, net))
    torch.testing.assert_close(found.running_mean, expected.running_mean)
    torch.testing.assert_close(found.running_var, expected.running_var)


# A family of a module


def by_hand(module: Plain, batches: DataLoader[Any], together: int = 1) -> ss.Subspace:
    """Train a family in a loop of our own."""
    torch.manual_seed(3)
    expected = ss.Subspace(type(module), ss.Line(), seed=1)
    optimizer = torch.optim.SGD(expected.parameters(), lr=0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    for _ in range(2):
        for index, (x, y) in enumerate(batches):
            torch.manual_seed(index)
            loss = F.cross_entropy(expected(x), y) + expected.penalty(1.0)
            (loss / together).backward()
            if (index + 1) % together == 0:
                optimizer.step()
                optimizer.zero_grad()
        schedule.step()
    return expected


@pytest.mark.parametrize("together", [1, 2])
def test_it_trains_as_a_loop_of_ones_own(together: int) -> None:
    module, batches = wrapped(), loader(shuffle=False)
    trainer(callbacks=[Seeding()], accumulate_grad_batches=together).fit(module, batches)
    expected = by_hand(Plain(), batches, together)
    for name, omega in expected.omega.items():
        assert torch.equal(omega, module.family.omega[name])
    steps = module.inner.weights
    assert len(steps) == 8
    assert not torch.equal(steps[0], steps[1])
    assert module.inner._trainer is None


@BOTH
def test_half_precision(make: Any) -> None:
    module, batches = make(), loader(shuffle=False)
    trainer(precision="bf16-mixed", callbacks=[SubspaceCallback()]).fit(module, batches, HELD_OUT)
    assert all(omega.dtype == torch.float32 and bool(omega.isfinite().all()) for omega in family(module).parameters())
    net = family(module).midpoint()
    with torch.autocast("cpu", torch.bfloat16):
        ss.recalibrate(net, batches)
    found, expected = (next(iter(batchnorm.tracked(each).values())) for each in (family(module).template, net))
    assert torch.equal(found.running_var, expected.running_var)


@BOTH
def test_a_resumed_run_is_the_same_bit_by_bit(make: Any, tmp_path: Path) -> None:
    def run(epochs: int) -> Any:
        return trainer(max_epochs=epochs, callbacks=[Seeding(), SubspaceCallback()])

    whole, first, second = make(), make(), make()
    run(3).fit(whole, loader(shuffle=False), HELD_OUT)
    stopped = run(1)
    stopped.fit(first, loader(shuffle=False), HELD_OUT)
    stopped.save_checkpoint(tmp_path / "last.ckpt")
    run(3).fit(second, loader(shuffle=False), HELD_OUT, ckpt_path=tmp_path / "last.ckpt")
    assert not same(first, whole)
    assert same(second, whole)


def test_hyperparameters_are_kept_and_a_checkpoint_is_loaded(tmp_path: Path) -> None:
    module = LightningSubspace(lambda: Plain(lr=0.2), ss.Line())
    run = trainer(max_epochs=1)
    run.fit(module, loader())
    assert run.optimizers[0].param_groups[0]["initial_lr"] == 0.2
    run.save_checkpoint(tmp_path / "last.ckpt")
    again = LightningSubspace.load_from_checkpoint(tmp_path / "last.ckpt", module=Plain, shape=ss.Line())
    assert dict(again.hparams) == {"lr": 0.2}
    assert same(again, module)


def test_hooks_run_at_the_midpoint() -> None:
    module = wrapped()
    run = trainer()
    run.fit(module, loader(), HELD_OUT)
    expected = module.midpoint().eval()(torch.zeros(1, 4)).sum().detach()
    assert run.callback_metrics["at_zero"] == pytest.approx(float(expected))


def test_hooks_around_the_optimiser_are_the_modules_own() -> None:
    class Careful(Plain):
        def on_after_backward(self) -> None:
            seen.append([each.grad for each in self.parameters()])  # those of a point have none

        def configure_gradient_clipping(self, optimizer: Any, **_: Any) -> None:
            self.clip_gradients(optimizer, 0.1, "norm")

        def optimizer_step(self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Any) -> None:
            super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
            seen.append(optimizer.param_groups[0]["params"][0].grad.norm())

    seen: list[Any] = []
    careful, clipped = wrapped(Careful), wrapped()
    trainer(callbacks=[Seeding()]).fit(careful, loader(shuffle=False))
    trainer(callbacks=[Seeding()], gradient_clip_val=0.1).fit(clipped, loader(shuffle=False))
    assert all(torch.equal(omega, clipped.family.omega[name]) for name, omega in careful.family.omega.items())
    assert seen[0] == [None] * 6
    assert len(seen) == 16
    assert max(float(norm) for norm in seen[1::2]) <= 0.1


def test_a_class_of_ones_own_keeps_its_methods() -> None:
    class Mine(LightningSubspace):
        def on_train_start(self) -> None:
            started.append(type(self))

    class Loud(Plain):
        def on_train_start(self) -> None:
            raise AssertionError("the one of the outer module is meant")

    started: list[type] = []
    module = Mine(Loud, ss.Line())
    trainer(max_epochs=1).fit(module, loader())
    assert started == [type(module)]
    assert isinstance(copy.deepcopy(module), Mine)


def test_the_midpoint_is_an_ordinary_module() -> None:
    module, batches = wrapped(), loader()
    run = trainer()
    run.fit(module, batches, HELD_OUT)
    net = module.midpoint()
    assert type(net) is Plain
    Plain().load_state_dict(net.state_dict(), strict=True)
    trainer().validate(ss.recalibrate(net, batches), HELD_OUT, verbose=False)
    x = torch.randn(6, 4)
    predicted = run.predict(module, DataLoader(x, batch_size=3))
    assert torch.equal(torch.cat(predicted), module.eval()(x))
    assert torch.equal(module.family.midpoint().eval()(x), module(x))


def test_it_can_be_copied_and_pickled() -> None:
    module = wrapped()
    for again in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert type(again) is type(module)
        assert same(again, module)
        trainer(max_epochs=1).fit(again, loader())
        assert not same(again, module)


def test_loaders_and_callbacks_of_the_module_are_its_own() -> None:
    class Complete(Plain):
        def train_dataloader(self) -> Any:
            return loader()

        def configure_callbacks(self) -> Any:
            return Seeding()

    module = wrapped(Complete)
    run = trainer(max_epochs=1)
    run.fit(module)
    kinds = [type(each) for each in run.callbacks]
    assert kinds.count(Seeding) == kinds.count(SubspaceCallback) == 1
    assert int(module.family.calibrated) == 4
    given = trainer(max_epochs=1, callbacks=[SubspaceCallback(batches=2)])
    given.fit(module)
    assert int(module.family.calibrated) == 2


# Optimisers


class Decayed(Plain):
    """The usual groups: no decay for biases and norms."""

    def configure_optimizers(self) -> Any:
        few = [each for each in self.parameters() if each.ndim < 2]
        many = [each for _, each in self.named_parameters() if each.ndim >= 2]
        groups = [{"params": few, "weight_decay": 0.0}, {"params": many, "weight_decay": 0.1}]
        optimizer = torch.optim.AdamW(groups, lr=0.01)
        return [optimizer], [torch.optim.lr_scheduler.StepLR(optimizer, 1)]


class Headed(Plain):
    """Groups by part."""

    def configure_optimizers(self) -> Any:
        head = {"params": self.net[4].parameters(), "lr": 0.5}
        return torch.optim.SGD([head, {"params": self.net[:4].parameters()}], lr=0.1)


def test_groups_are_those_of_the_family() -> None:
    module = wrapped(Decayed)
    run = trainer(max_epochs=1)
    run.fit(module, loader())
    others, weights = run.optimizers[0].param_groups
    assert [id(each) for each in others["params"]] == [id(module.family.omega["others"])]
    assert [id(each) for each in weights["params"]] == [id(module.family.omega["weights"])]
    assert (others["weight_decay"], weights["weight_decay"]) == (0.0, 0.1)
    assert set(run.optimizers[0].state) == set(module.family.parameters())


def test_groups_of_parts_need_the_same_groups_in_the_family() -> None:
    with pytest.raises(ValueError, match=r"1 of the 2 parameters.*'weights'.*pass groups=.*or optimizers="):
        trainer(max_epochs=1).fit(wrapped(Headed), loader())
    module = wrapped(Headed, groups=lambda net: net.configure_optimizers().param_groups)
    run = trainer(max_epochs=1)
    run.fit(module, loader())
    head, body = run.optimizers[0].param_groups
    assert (head["lr"], sum(each.shape[1] for each in head["params"])) == (0.5, 27)
    assert (body["lr"], sum(each.shape[1] for each in body["params"])) == (0.1, 40 + 16)
    given = wrapped(Headed, optimizers=lambda family: torch.optim.Adagrad(family.parameters()))
    run.fit(given, loader())
    assert isinstance(run.optimizers[0], torch.optim.Adagrad)


def test_an_optimiser_that_knows_its_parameters_already_is_refused() -> None:
    class Adagrad(Plain):
        def configure_optimizers(self) -> Any:
            return torch.optim.Adagrad(self.parameters())

    with pytest.raises(ValueError, match=r"Adagrad keeps something.*pass optimizers="):
        trainer().fit(wrapped(Adagrad), loader())


class Manual(Plain):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False


class Silent(Plain):
    forward = LightningModule.forward


class Late(Plain):
    def configure_model(self) -> None: ...


@pytest.mark.parametrize(
    ("kind", "options", "message"),
    [
        (Manual, {}, "automatic_optimization=False.*leave it True, or hold the family"),
        (Silent, {}, r"batch norm and no forward.*def forward\(self, x\)"),
        (Late, {}, "makes its layers in configure_model.*make them in __init__"),
        (modules.make_net, {}, "got a Sequential: expected a LightningModule"),
        (Plain, {"statistics_every": 5}, "run a training step twice: leave it out"),
        (Plain, {"beta": -1}, "beta=-1: expected a number of at least 0"),
        (Plain, {"optimizers": 3}, "optimizers=3: expected a function of the family"),
    ],
)
def test_what_cannot_be_is_refused(kind: Any, options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        wrapped(kind, **options)


def test_the_example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    found = dict(re.findall(r"the midpoint of (\w+): ([\d.]+)%", capsys.readouterr().out))
    assert set(found) == {"Digits", "LightningSubspace"}
    assert all(float(accuracy) > 90 for accuracy in found.values())
