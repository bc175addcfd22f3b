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


def at(folder: Path, alpha: Any) -> Array:
    family = ss.load(folder / "family.safetensors", lambda: MLP(64, 10))
    weights = dict(family.at(alpha, outside=True).named_parameters())
    return np.concatenate([weights[name].detach().double().numpy().ravel() for name in sorted(weights)])


def vertices(folder: Path) -> list[Array]:
    shape = Run.open(folder).recipe.result_shape()
    if shape.vertices == 1:
        return [at(folder, 0.0)]
    if shape.point:
        return [at(folder, alpha) for alpha in np.eye(shape.vertices).tolist()]
    family = ss.load(folder / "family.safetensors", lambda: MLP(64, 10))
    each = [family.vertex(index) for index in range(shape.vertices)]
    return [np.concatenate([one[name].detach().double().numpy().ravel() for name in sorted(one)]) for one in each]


def frame(corners: list[Array]) -> tuple[Array, Array]:
    """Return origin and axes [2, n] by Gram and Schmidt, through numpy's QR decomposition."""
    q, r = np.linalg.qr(np.stack([corner - corners[0] for corner in corners[1:]], 1))
    return corners[0], (q * np.sign(np.diag(r))).T


def check(plane: Plane, corners: list[Array], drawings: dict[str, list[Array]]) -> None:
    """Compare the coordinates of a plane and what is drawn in it."""
    origin, axes = frame(corners)
    for corner, weights in zip(plane.corners, corners, strict=True):
        assert axes @ (weights - origin) == pytest.approx([corner.x, corner.y], abs=1e-5)
    places = np.array([(corner.x, corner.y) for corner in plane.corners])
    assert (plane.corners[0].x, plane.corners[0].y, plane.corners[1].y) == (0, 0, 0)
    for axis, values in enumerate((plane.xs, plane.ys)):
        low, high = places[:, axis].min(), places[:, axis].max()
        margin = 0.2 * (high - low)
        assert values == pytest.approx(list(np.linspace(low - margin, high + margin, len(values))))
    for label, points in drawings.items():
        (drawn,) = (drawn for drawn in plane.drawn if drawn.label == label)
        assert (drawn.kind, len(drawn.x)) == ("point" if len(points) == 1 else "path", len(points))
        for x, y, distance, point in zip(drawn.x, drawn.y, drawn.distance, points, strict=True):
            place = axes @ (point - origin)
            assert [x, y] == pytest.approx(list(place), abs=1e-4)
            assert distance == pytest.approx(np.linalg.norm(point - origin - place @ axes), abs=1e-4)


def test_a_simplex_is_a_triangle_in_its_plane_and_its_corners_are_its_vertices(runs: Runs) -> None:
    (folder,) = runs("simplex")
    plane, record = plane_of(folder, cells=8)  # steps of a seventh of 1.4: the corners are cells
    assert plane.name == "vertex 1, vertex 2, vertex 3"
    corners, name = vertices(folder), "digits-simplex seed 0"
    check(plane, corners, {name: [*corners, corners[0]], f"{name} midpoint": [np.mean(corners, 0)]})
    assert max(value for drawn in plane.drawn for value in drawn.distance) < 1e-5
    assert (plane.split, plane.count, plane.statistics_images) == ("test", 597, 1200)
    rows = {tuple(row.alphas[0]): row.metrics for row in record.rows if row.kind == "point"}  # type: ignore[arg-type]
    for index, (j, i) in enumerate([(1, 1), (1, 6)]):
        own = rows[tuple(np.eye(3)[index].tolist())]
        assert plane.values["accuracy"][j][i] == pytest.approx(own["accuracy"], abs=2e-3)
        assert plane.values["nll"][j][i] == pytest.approx(own["nll"], abs=1e-4)


def test_every_cell_is_the_network_at_its_place(runs: Runs) -> None:
    (folder,) = runs("curve")
    plane, _ = plane_of(folder, cells=3, plane_statistics_batches=4)
    corners, name = vertices(folder), "digits-curve seed 0"
    assert [corner.label for corner in plane.corners] == ["α = 0", "bend", "α = 1"]
    check(plane, corners, {name: [at(folder, step / 40) for step in range(41)], f"{name} midpoint": [at(folder, 0.5)]})
    assert plane.statistics_images == 4 * 128
    truth = Independent(folder)
    origin, axes = frame(corners)
    for j, i in np.ndindex(3, 3):
        network = truth.family.midpoint()
        place, names = origin + plane.xs[i] * axes[0] + plane.ys[j] * axes[1], sorted(dict(network.named_parameters()))
        parts = np.split(place, np.cumsum([network.get_parameter(name).numel() for name in names])[:-1])
        with torch.no_grad():
            for name, part in zip(names, parts, strict=True):
                parameter = network.get_parameter(name)
                parameter.copy_(torch.from_numpy(part).view_as(parameter))
        ss.recalibrate(network, statistics_batches(truth.recipe, truth.dataset, CPU), batches=4)
        truth.network = lambda alpha, network=network: network.eval()  # type: ignore[misc, method-assign]
        logits, labels = truth.predict(0.5, "test"), truth.labels("test")
        log = logits - np.log(np.exp(logits).sum(1, keepdims=True))
        assert plane.values["accuracy"][j][i] == pytest.approx((logits.argmax(1) == labels).mean(), abs=2e-3)
        assert plane.values["nll"][j][i] == pytest.approx(-log[np.arange(len(labels)), labels].mean(), abs=1e-4)


def test_networks_of_other_runs(runs: Runs) -> None:
    line, standard, other, simplex, curve = runs("line", "standard", "other", "simplex", "curve")
    plane, _ = plane_of(line, plane=False, through=[standard], cells=2)
    assert plane.name == "α = 0, α = 1, digits-standard seed 0"
    assert [drawn.label for drawn in plane.drawn] == ["digits-line seed 0", "digits-line seed 0 midpoint"]
    path = [at(line, step / 40) for step in range(41)]
    check(plane, [*vertices(line), *vertices(standard)], {"digits-line seed 0": path})
    plane, _ = plane_of(standard, through=[other, simplex], cells=2)
    ends = vertices(simplex)
    corners = [*vertices(standard), *vertices(other), np.mean(ends, 0)]
    labels = ["network", "digits-standard seed 1", "digits-simplex seed 0 midpoint"]
    assert [corner.label for corner in plane.corners] == labels
    check(plane, corners, {"digits-simplex seed 0": [*ends, ends[0]]})
    assert min(plane.drawn[0].distance) > 0.1
    plane, _ = plane_of(other, through=[curve, standard, simplex], cells=2)
    corners = [at(curve, 0.5), *vertices(standard), np.mean(ends, 0)]
    check(plane, corners, {"digits-standard seed 1": vertices(other)})


def test_planes_that_cannot_be(runs: Runs, tmp_path: Path) -> None:
    line, standard, lenet = runs("line", "standard", "lenet")
    mnist, unfinished = tmp_path / "mnist", tmp_path / "unfinished"
    recipe = dataclasses.replace(Run.open(standard).recipe, dataset="mnist")
    for folder in (mnist, unfinished):
        folder.mkdir()
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
