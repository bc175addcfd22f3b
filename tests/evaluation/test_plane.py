"""Planes: coordinates, cells, what is drawn in them, and the networks they go through."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from evaluation_cases import CPU, Independent
from numpy.typing import NDArray

import subspaces as ss
from subspaces.evaluation import Evaluation, Plane
from subspaces.experiments.training import Run, RunError, run_files
from subspaces.experiments.training.batches import statistics_batches
from subspaces.networks import MLP

Array = NDArray[np.float64]
Runs = Callable[..., list[Path]]


def plane_of(folder: Path, **settings: Any) -> tuple[Plane, Evaluation]:
    options = {"grid": (), "random": 0, "triangle": 0, "device": "cpu", "progress": False, "plane": True}
    record = ss.evaluate(folder, **{**options, **settings})
    (plane,) = record.planes
    return plane, record


def flat(weights: dict[str, torch.Tensor]) -> Array:
    return np.concatenate([weights[name].detach().double().numpy().ravel() for name in sorted(weights)])


def vertices(folder: Path) -> list[Array]:
    family = ss.load(folder / "family.safetensors", lambda: MLP(64, 10))
    return [flat(family.vertex(index)) for index in range(family.shape.vertices)]


def at(folder: Path, alpha: Any) -> Array:
    family = ss.load(folder / "family.safetensors", lambda: MLP(64, 10))
    return flat(dict(family.at(alpha, outside=True).named_parameters()))


def frame(corners: list[Array]) -> tuple[Array, Array]:
    """Return origin and axes [2, n] by Gram and Schmidt, through numpy's QR decomposition."""
    q, r = np.linalg.qr(np.stack([corner - corners[0] for corner in corners[1:]], 1))
    return corners[0], (q * np.sign(np.diag(r))).T


def check_coordinates(plane: Plane, corners: list[Array]) -> None:
    origin, axes = frame(corners)
    for corner, weights in zip(plane.corners, corners, strict=True):
        assert axes @ (weights - origin) == pytest.approx([corner.x, corner.y], abs=1e-5)
    places = np.array([(corner.x, corner.y) for corner in plane.corners])
    assert (plane.corners[0].x, plane.corners[0].y, plane.corners[1].y) == (0, 0, 0)
    for one in range(3):  # lengths in the plane are lengths in weight space
        for other in range(one):
            expected = np.linalg.norm(corners[one] - corners[other])
            assert np.linalg.norm(places[one] - places[other]) == pytest.approx(expected, rel=1e-6)
    for axis, values in enumerate((plane.xs, plane.ys)):
        low, high = places[:, axis].min(), places[:, axis].max()
        margin = 0.2 * (high - low)
        assert values == pytest.approx(list(np.linspace(low - margin, high + margin, len(values))))


def check_drawn(plane: Plane, label: str, points: list[Array], corners: list[Array]) -> None:
    origin, axes = frame(corners)
    (drawn,) = (drawn for drawn in plane.drawn if drawn.label == label)
    assert drawn.kind == ("point" if len(points) == 1 else "path")
    assert len(drawn.x) == len(points)
    for x, y, distance, point in zip(drawn.x, drawn.y, drawn.distance, points, strict=True):
        place = axes @ (point - origin)
        assert [x, y] == pytest.approx(list(place), abs=1e-4)
        off = np.linalg.norm(point - origin - place @ axes)
        assert distance == pytest.approx(off, abs=1e-4)


def test_a_simplex_is_a_triangle_in_its_plane_and_its_corners_are_its_vertices(runs: Runs) -> None:
    (folder,) = runs("simplex")
    plane, record = plane_of(folder, cells=8)  # steps of a seventh of 1.4: the corners are cells
    assert plane.name == "vertex 1, vertex 2, vertex 3"
    corners = vertices(folder)
    check_coordinates(plane, corners)
    check_drawn(plane, "digits-simplex seed 0", [corners[index] for index in (0, 1, 2, 0)], corners)
    check_drawn(plane, "digits-simplex seed 0 midpoint", [np.mean(corners, 0)], corners)
    assert max(value for drawn in plane.drawn for value in drawn.distance) < 1e-5
    assert (plane.split, plane.count, plane.statistics_images) == ("test", 597, 1200)
    rows = {tuple(row.alphas[0]): row.metrics for row in record.rows if row.kind == "point"}  # type: ignore[arg-type]
    width, places = plane.corners[1].x, [(1, 1), (1, 6)]
    assert plane.xs[1] == pytest.approx(0, abs=1e-9 * width)
    assert plane.xs[6] == pytest.approx(width)
    for index, (j, i) in enumerate(places):
        own = rows[tuple(np.eye(3)[index].tolist())]
        assert plane.values["accuracy"][j][i] == pytest.approx(own["accuracy"], abs=2e-3)
        assert plane.values["nll"][j][i] == pytest.approx(own["nll"], abs=1e-4)


def test_every_cell_is_the_network_at_its_place(runs: Runs) -> None:
    (folder,) = runs("curve")
    plane, _ = plane_of(folder, cells=3, plane_statistics_batches=4)
    corners = vertices(folder)
    assert [corner.label for corner in plane.corners] == ["α = 0", "bend", "α = 1"]
    check_coordinates(plane, corners)
    check_drawn(plane, "digits-curve seed 0", [at(folder, step / 40) for step in range(41)], corners)
    check_drawn(plane, "digits-curve seed 0 midpoint", [at(folder, 0.5)], corners)
    assert plane.statistics_images == 4 * 128
    truth = Independent(folder)
    origin, axes = frame(corners)
    for j, y in enumerate(plane.ys):
        for i, x in enumerate(plane.xs):
            network = truth.family.midpoint()
            place, names = origin + x * axes[0] + y * axes[1], sorted(dict(network.named_parameters()))
            parts = np.split(place, np.cumsum([network.get_parameter(name).numel() for name in names])[:-1])
            with torch.no_grad():
                for name, part in zip(names, parts, strict=True):
                    parameter = network.get_parameter(name)
                    parameter.copy_(torch.from_numpy(part).view_as(parameter))
            ss.recalibrate(network, statistics_batches(truth.recipe, truth.dataset, CPU), batches=4)
            truth.network = lambda alpha, network=network: network.eval()  # type: ignore[misc, method-assign]
            logits = truth.predict(0.5, "test")
            labels = truth.labels("test")
            log = logits - np.log(np.exp(logits).sum(1, keepdims=True))
            assert plane.values["accuracy"][j][i] == pytest.approx((logits.argmax(1) == labels).mean(), abs=2e-3)
            assert plane.values["nll"][j][i] == pytest.approx(-log[np.arange(len(labels)), labels].mean(), abs=1e-4)


def test_a_line_and_another_run(runs: Runs) -> None:
    line, other = runs("line", "standard")
    plane, _ = plane_of(line, plane=False, through=[other], cells=2)
    corners = [*vertices(line), *vertices(other)]
    assert plane.name == "α = 0, α = 1, digits-standard seed 0"
    check_coordinates(plane, corners)
    assert [drawn.label for drawn in plane.drawn] == ["digits-line seed 0", "digits-line seed 0 midpoint"]
    check_drawn(plane, "digits-line seed 0", [at(line, step / 40) for step in range(41)], corners)


def test_three_networks_of_any_runs(runs: Runs) -> None:
    standard, other, simplex, curve = runs("standard", "other", "simplex", "curve")
    plane, _ = plane_of(standard, through=[other, simplex], cells=2)
    corners = [*vertices(standard), *vertices(other), at(simplex, [1 / 3] * 3)]
    check_coordinates(plane, corners)
    labels = ["network", "digits-standard seed 1", "digits-simplex seed 0 midpoint"]
    assert [corner.label for corner in plane.corners] == labels
    ends = vertices(simplex)
    check_drawn(plane, "digits-simplex seed 0", [ends[index] for index in (0, 1, 2, 0)], corners)
    assert min(plane.drawn[0].distance) > 0.1
    plane, _ = plane_of(other, through=[curve, standard, simplex], cells=2)
    corners = [at(curve, 0.5), *vertices(standard), at(simplex, [1 / 3] * 3)]
    check_drawn(plane, "digits-standard seed 1", vertices(other), corners)
    assert plane.corners[0].label == "digits-curve seed 0 midpoint"


def test_planes_that_cannot_be(runs: Runs, tmp_path: Path) -> None:
    line, standard, lenet = runs("line", "standard", "lenet")
    mnist = tmp_path / "mnist"
    mnist.mkdir()
    recipe = dataclasses.replace(Run.open(standard).recipe, dataset="mnist")
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    for folder in (mnist, unfinished):
        run_files.write_json(folder / "config.json", recipe.to_dict(), recipe.key)
    (mnist / "family.safetensors").write_bytes((standard / "family.safetensors").read_bytes())
    Run.open(mnist).finish({}, {"family.safetensors": Run.open(standard).family_checksum})
    wrong: list[tuple[Path, list[Any], type[Exception], str]] = [
        (line, [], ValueError, "has 2 of the three networks .* name 1 of other runs, --plane-through"),
        (standard, [], ValueError, "has 1 of the three networks .* name two of other runs"),
        (standard, [line], ValueError, "has 1 of the three networks"),
        (line, [mnist], ValueError, "data set 'digits' and .* 'mnist': a plane goes through networks of one data set"),
        (line, [lenet], ValueError, "network 'mlp' and .* 'lenet': a plane goes through networks of one network"),
        (line, [tmp_path / "nowhere"], RunError, "not a run folder"),
        (line, [unfinished], RunError, "not finished"),
        (line, [line], ValueError, "lie on one line"),
    ]
    for folder, through, kind, words in wrong:
        with pytest.raises(kind, match=words):
            ss.evaluate(folder, plane=True, through=through, device="cpu", progress=False, grid=())
