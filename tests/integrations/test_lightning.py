"""Families in Lightning's trainer: statistics, training bit by bit, optimisers, averages, checkpoints."""

import re
import runpy
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import subspaces as ss

pytest.importorskip("lightning", reason="needs lightning: pip install '.[lightning]'")

from lightning.pytorch import Callback, LightningModule, Trainer, callbacks

from subspaces.integrations.lightning import SubspaceCallback

pytestmark = [
    pytest.mark.filterwarnings(r"ignore:`isinstance\(treespec, LeafSpec\)` is deprecated:FutureWarning"),
    pytest.mark.filterwarnings(r"ignore:The '\w+' does not have many workers"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
]
ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "with_lightning.py"


def make_net() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.1), nn.Linear(8, 3))


def data(n: int, seed: int = 0) -> TensorDataset:
    """Return three classes that a line through the origin cannot separate."""
    x = torch.randn(n, 4, generator=torch.Generator().manual_seed(seed)) * 3 + 5
    return TensorDataset(x, (x[:, 0] > 4).long() + (x[:, 1] > 6).long())


def loader(n: int = 64, seed: int = 0, shuffle: bool = False, **options: Any) -> DataLoader[Any]:
    return DataLoader(data(n, seed), batch_size=16, shuffle=shuffle, **options)


HELD_OUT = loader(seed=1)


def trainer(**options: Any) -> Trainer:
    quiet = dict.fromkeys(("enable_progress_bar", "enable_model_summary", "logger", "enable_checkpointing"), False)
    settings = {"accelerator": "cpu", "devices": 1, "max_epochs": 2, "log_every_n_steps": 1, **quiet, **options}
    return Trainer(**settings)


def accuracy(output: Tensor, y: Tensor) -> Tensor:
    return (output.argmax(1) == y).float().mean()


class Holding(LightningModule):
    """A user's module with a family instead of a network."""

    def __init__(self, network: Any = make_net, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.net = ss.Subspace(network, ss.Line(), seed=1, **options)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        return F.cross_entropy(self.net(x), y) + self.net.penalty(beta=1.0)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.log("accuracy", accuracy(self.net(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1, momentum=0.9)


class Seeding(Callback):
    """Make torch's own random numbers, which Lightning does not save, those of the step."""

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        torch.manual_seed(batch_idx)


def assert_recalibrated(module: Any, batches: Any, accurate: Any = None) -> None:
    """Compare a family's statistics, and its logged accuracy, with those of its recalibrated midpoint."""
    net: Any = ss.recalibrate(module.net.midpoint(), batches)
    assert torch.equal(module.net.template[1].running_mean, net[1].running_mean)
    assert torch.equal(module.net.template[1].running_var, net[1].running_var)
    if accurate is not None:
        x, y = HELD_OUT.dataset.tensors  # type: ignore[attr-defined]
        assert float(accurate) == pytest.approx(float(accuracy(net.eval()(x), y)))


# Batch-norm statistics


def test_validation_is_that_of_the_recalibrated_midpoint() -> None:
    module, batches = Holding(), loader()
    run = trainer(callbacks=[SubspaceCallback()])
    run.fit(module, batches, HELD_OUT)
    assert_recalibrated(module, batches, run.callback_metrics["accuracy"])


@pytest.mark.filterwarnings(
    "ignore::subspaces.core.batchnorm.StatisticsWarning"
)  # as it should be without the callback
def test_training_is_the_same_bit_by_bit_with_the_callback() -> None:
    """With shuffling and dropout, and validations in the middle of an epoch."""
    found = []
    for added in ([SubspaceCallback()], []):
        module = Holding()
        batches = loader(shuffle=True)
        trainer(callbacks=added, val_check_interval=0.5).fit(module, batches, HELD_OUT)
        found.append((module.net, torch.rand(())))
        assert module.training
    (with_it, next_number), (without, other_number) = found
    for name, omega in with_it.omega.items():
        assert torch.equal(omega, without.omega[name])
    assert torch.equal(with_it.rng, without.rng)
    assert torch.equal(next_number, other_number)
    assert with_it.is_calibrated
    assert not without.is_calibrated


def test_statistics_are_made_of_the_wanted_batches_once_for_the_same_weights() -> None:
    named = [{"input": x} for x, _ in loader(128)]
    for options, expected in (({"batches": 1}, 1), ({}, 2), ({"loader": loader(128)}, 8), ({"loader": named}, 8)):
        module = Holding()
        trainer(callbacks=[SubspaceCallback(**options)], limit_train_batches=2).fit(module, loader())
        assert int(module.net.calibrated) == expected
    module, calls = Holding(), []
    callback = SubspaceCallback(forward=lambda net, batch: calls.append(len(batch[0])) or net(batch[0]))
    run = trainer(callbacks=[callback])
    run.fit(module, loader(), HELD_OUT)
    assert calls == [16] * 4 * 2  # two epochs of four batches, nothing at the end of training
    run.validate(module, HELD_OUT, verbose=False)
    assert len(calls) == 8


def test_where_no_train_loader_is_known_the_error_says_what_to_pass() -> None:
    module, batches = Holding(), loader()
    trainer().fit(module, batches)
    with pytest.raises(ss.UserError, match=r"'net' belong to no point.*no train loader.*SubspaceCallback\(loader="):
        trainer(callbacks=[SubspaceCallback()]).validate(module, HELD_OUT, verbose=False)
    trainer(callbacks=[SubspaceCallback(batches)]).validate(module, HELD_OUT, verbose=False)
    assert_recalibrated(module, batches)
    with pytest.raises(ss.UserError, match="batches=0: expected"):
        SubspaceCallback(batches=0)


def test_two_processes_make_statistics_of_all_batches(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.is_initialized():
        pytest.skip("a process with a CUDA device in use cannot be forked")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))  # where Lightning leaves a folder
    module = Holding()
    run = trainer(callbacks=[SubspaceCallback()], strategy="ddp_fork", devices=2, max_epochs=1, num_sanity_val_steps=0)
    run.fit(module, loader())
    images = data(64)
    shares = [list(DistributedSampler(images, 2, rank)) for rank in (0, 1)]
    net: Any = ss.recalibrate(
        module.net.midpoint(), [part for share in shares for part in images.tensors[0][share].split(16)]
    )
    torch.testing.assert_close(module.net.template[1].running_mean, net[1].running_mean)
    torch.testing.assert_close(module.net.template[1].running_var, net[1].running_var)


# Training


def test_a_resumed_run_is_the_same_bit_by_bit(tmp_path: Path) -> None:
    def run(epochs: int) -> Any:
        return trainer(max_epochs=epochs, callbacks=[Seeding(), SubspaceCallback()])

    whole, first, second = Holding(), Holding(), Holding()
    run(3).fit(whole, loader(), HELD_OUT)
    stopped = run(1)
    stopped.fit(first, loader(), HELD_OUT)
    stopped.save_checkpoint(tmp_path / "last.ckpt")
    run(3).fit(second, loader(), HELD_OUT, ckpt_path=tmp_path / "last.ckpt")
    mine, theirs = second.state_dict(), whole.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in theirs)
    assert not torch.equal(first.net.omega["others"], whole.net.omega["others"])


AVERAGES = [lambda: callbacks.StochasticWeightAveraging(0.05, swa_epoch_start=1)]
if hasattr(callbacks, "EMAWeightAveraging"):
    AVERAGES.append(lambda: callbacks.EMAWeightAveraging(decay=0.5, use_buffers=True))


@pytest.mark.filterwarnings("ignore:`training_step` returned `None`")
@pytest.mark.filterwarnings("ignore::subspaces.core.batchnorm.StatisticsWarning")  # of the sanity check
@pytest.mark.parametrize("every", [None, 2])
@pytest.mark.parametrize("average", AVERAGES)
def test_averaged_weights_get_statistics_of_their_own(average: Any, every: int | None) -> None:
    module, batches = Holding(statistics_every=every), loader()
    run = trainer(callbacks=[average(), SubspaceCallback()], num_sanity_val_steps=0)
    run.fit(module, batches, HELD_OUT)
    assert_recalibrated(module, batches, run.callback_metrics["accuracy"])
    with pytest.raises(ss.UserError, match=r"comes before .*WeightAveraging.*callbacks=\[.*SubspaceCallback"):
        trainer(callbacks=[SubspaceCallback(), average()]).fit(Holding(), batches)


class Grouped(Holding):
    def __init__(self, rule: str) -> None:
        super().__init__()
        self.head, self.rule = nn.Linear(3, 3), rule

    def configure_optimizers(self) -> Any:
        named = list(self.named_parameters())
        apart = [each for name, each in named if (each.ndim < 2 if self.rule == "dimensions" else "bias" in name)]
        if self.rule == "family":
            groups = [*self.net.parameter_groups(others={"weight_decay": 0}), {"params": self.head.parameters()}]
        else:
            decaying = [each for _, each in named if all(each is not other for other in apart)]
            groups = [{"params": decaying}, {"params": apart, "weight_decay": 0.0}]
        return torch.optim.AdamW(groups, lr=0.01, weight_decay=0.1)


def test_weight_decay_that_excludes_only_what_is_not_in_the_family_is_refused() -> None:
    for rule in ("dimensions", "names"):
        with pytest.raises(ss.UserError, match=r"norms and biases of the family 'net'.*self\.net\.parameter_groups"):
            trainer(callbacks=[SubspaceCallback()]).fit(Grouped(rule), loader())
    trainer(callbacks=[SubspaceCallback()], max_epochs=1).fit(Grouped("family"), loader())


def test_strategies_that_cut_parameters_are_refused() -> None:
    from lightning.pytorch.strategies import FSDPStrategy

    run: Any = SimpleNamespace(strategy=FSDPStrategy.__new__(FSDPStrategy))  # a real one needs a device
    with pytest.raises(ss.UserError, match=r"FSDPStrategy cuts the vertices.*strategy='ddp'"):
        SubspaceCallback().setup(run, Holding(), "fit")


def test_the_example(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    runpy.run_path(str(EXAMPLE), run_name="__main__")
    (found,) = re.findall(r"the midpoint: ([\d.]+)%", capsys.readouterr().out)
    assert float(found) > 90


def test_the_code_of_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "how-to" / "lightning.md").read_text(), re.DOTALL)
    names: dict[str, Any] = {"ss": ss, "torch": torch, "F": F, "make_net": make_net}
    names |= {"loader": loader(shuffle=True), "held_out": HELD_OUT}
    exec(code, names)
    assert 0 <= names["trainer"].callback_metrics["accuracy"] <= 1
    assert isinstance(names["net"], nn.Sequential)
    assert names["module"].net.is_calibrated
