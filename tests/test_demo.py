"""The demo's parts, and the demo in small."""

import pytest
import torch

import subspaces as ss
from subspaces import demo
from subspaces.networks import MLP


def test_label_noise_is_a_fixed_fraction_of_the_training_labels() -> None:
    clean, noisy, again = demo.digits(0.0), demo.digits(0.4), demo.digits(0.4)
    assert torch.equal(noisy.labels, again.labels)
    changed = (clean.labels != noisy.labels).float().mean()
    assert 0.4 * 0.85 < changed < 0.4 * 0.95  # a random label is right by chance one time in ten
    assert torch.equal(clean.test_labels, noisy.test_labels)
    assert len(clean.labels) + len(clean.test_labels) == 1797


def test_a_network_learns_clean_digits() -> None:
    data = demo.digits(0.0)
    torch.manual_seed(0)
    network = demo.train(MLP(), data, demo.Setting(epochs=5), 0, lambda: None)
    accuracy, ece = demo.evaluate(network, data)
    assert accuracy > 93
    assert 0 <= ece < 20


def test_rows_findings_and_cost() -> None:
    setting = demo.Setting(seeds=2, epochs=2)
    ticks: list[None] = []
    rows, family = demo.run(setting, lambda: ticks.append(None))
    assert len(ticks) == 2 * 3 * setting.steps
    assert setting.steps == 2 * 10
    assert [row.training_steps for row in rows] == [20, 20, 20, 40, 20]
    assert [row.networks_at_test for row in rows] == [1, 1, 1, 2, 2]
    assert all(row.accuracy.shape == row.ece.shape == (2,) for row in rows)
    assert isinstance(family, ss.Subspace)
    sentences = demo.findings(rows)
    difference = float((rows[2].accuracy - rows[0].accuracy).mean())
    assert f"accuracy {difference:+.1f} points" in sentences[0]
    assert len(sentences) == 4


def test_findings_count_the_seeds_in_which_it_is_better() -> None:
    def row(accuracy: list[float], ece: list[float]) -> demo.Row:
        return demo.Row("r", torch.tensor(accuracy), torch.tensor(ece), 1, 1)

    low, high = row([50.0, 60.0, 70.0], [5.0, 5.0, 5.0]), row([60.0, 60.0, 60.0], [4.0, 6.0, 3.0])
    sentence = demo.findings([low, low, high, high, high])[0]
    assert "accuracy +0.0 points, better in 1 of 3 seeds; ECE -0.7 points, better in 2 of 3 seeds" in sentence


@pytest.mark.parametrize("bad", [{"seeds": 0}, {"epochs": 0}, {"label_noise": 1.5}])
def test_bad_settings(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(bad))}="):
        demo.Setting(**bad)
