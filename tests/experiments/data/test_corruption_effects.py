"""What each corruption computes, against other programs and the formulas."""

import colorsys
import io
import math
from typing import Any

import numpy as np
import pytest
import torch
from made import natural
from PIL import Image
from scipy import ndimage, stats
from torch import Tensor

from subspaces.evaluation.corruptions import SEVERITIES, blur, corrupt, digital, matrices, weather
from subspaces.evaluation.corruptions.catalogue import PARAMETERS
from subspaces.evaluation.corruptions.matrices import Draws


def draws(n: int = 1) -> Draws:
    return Draws(0, 0, 0, n, torch.device("cpu"))


# Noise


def flat(value: int, n: int = 4, side: int = 64) -> Tensor:
    return torch.full((n, 3, side, side), value, dtype=torch.uint8)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_gaussian_and_speckle_noise_have_their_standard_deviations(severity: int) -> None:
    for name, scale in (("gaussian_noise", 255), ("speckle_noise", 128)):
        sigma = PARAMETERS[name][32][severity - 1] * scale
        found = corrupt(flat(128, 48, 32), name, severity).double()
        assert found.mean().item() == pytest.approx(127.5, abs=0.3)  # cut off, not rounded
        assert found.std().item() == pytest.approx(sigma, rel=0.02)


def test_normal_numbers_are_normal() -> None:
    found = draws(4).normal(5, 501).flatten().double().numpy()
    assert stats.kstest(found, "norm").pvalue > 0.01
    first, second = draws(2).normal(1000)
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.1


@pytest.mark.parametrize("photons", [3, 60, 500])
def test_shot_noise_is_poissons_to_the_last_photon(photons: int) -> None:
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).expand(8, -1, -1, -1)
    found = digital.shot_noise(images, photons, draws(8))
    u = draws(8).uniform(1, 16, 16).double().numpy()
    counted = stats.poisson.ppf(u, images.numpy() / 255 * photons)
    expected = np.uint8(np.clip(np.maximum(counted, 0) / photons, 0, 1) * 255)
    assert np.array_equal(found.numpy(), expected)
    many = corrupt(flat(100), "shot_noise", 1).double()  # 64 pixels: 250 photons
    assert many.mean().item() == pytest.approx(99.5, abs=0.3)
    assert many.var().item() == pytest.approx(100 * 255 / 250, rel=0.05)


@pytest.mark.parametrize("severity", [1, 5])
def test_impulse_noise_loses_its_share_of_values(severity: int) -> None:
    share = PARAMETERS["impulse_noise"][64][severity - 1]
    found = corrupt(flat(100), "impulse_noise", severity)
    assert set(found.unique().tolist()) == {0, 100, 255}
    for value in (0, 255):
        assert (found == value).double().mean().item() == pytest.approx(share / 2, rel=0.15)


# Blur


@pytest.mark.parametrize(("side", "sigma"), [(8, 1), (32, 0.4), (64, 6)])
def test_gaussian_blurs_are_scipys(side: int, sigma: float) -> None:
    image = torch.rand(side, side, dtype=torch.float64)
    borders: list[tuple[str, Any, float]] = [("nearest", matrices.nearest, 4), ("reflect", matrices.mirrored, 3)]
    for mode, border, truncate in [*borders, ("mirror", matrices.folded, 4)]:
        matrix = matrices.gaussian(side, sigma, border, truncate)
        expected = ndimage.gaussian_filter(image.numpy(), sigma, mode=mode, truncate=truncate)
        np.testing.assert_allclose(matrices.product(image, matrix, matrix), expected, atol=1e-12)


@pytest.mark.parametrize(("side", "radius", "sigma"), [(32, 1.5, 0.1), (64, 3, 0.1), (64, 8, 0.5), (64, 10, 0.5)])
def test_defocus_is_the_mean_over_a_disk(side: int, radius: float, sigma: float) -> None:
    reach = max(8, int(radius))
    y, x = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    disk = (x**2 + y**2 <= radius**2) / np.sum(x**2 + y**2 <= radius**2)
    soft = 1 if radius <= 8 else 2
    disk = ndimage.gaussian_filter(disk, sigma, mode="mirror", radius=soft)
    image = torch.rand(side, side, dtype=torch.float64)
    found = matrices.product(image, *blur._disk(side, side, radius, sigma))
    np.testing.assert_allclose(found, ndimage.correlate(image.numpy(), disk, mode="mirror"), atol=1e-12)


def enlarged(image: Any, factor: float) -> Any:
    side = len(image)
    kept = int(np.ceil(side / factor))
    top = (side - kept) // 2
    larger = ndimage.zoom(image[top : top + kept, top : top + kept], factor, order=1)
    trim = (len(larger) - side) // 2
    return larger[trim : trim + side, trim : trim + side]


def test_zoom_blur_is_the_mean_of_zooms() -> None:
    image = natural(1, 28)
    one = image[0, 1].double().numpy()
    total = one + sum(enlarged(one, factor) for factor in np.arange(1, 1.16, 0.01))
    expected = torch.from_numpy(total / 17 + matrices.SLACK).to(torch.uint8)
    assert torch.equal(corrupt(image, "zoom_blur", 3)[0, 1], expected)


@pytest.mark.parametrize(("height", "width", "reach"), [(12, 12, 1), (9, 17, 2), (24, 24, 4), (3, 3, 1), (2, 5, 2)])
def test_behind_glass_pixels_are_replaced_one_after_the_other(height: int, width: int, reach: int) -> None:
    found = blur._replaced(height, width, reach, draws(3))
    moved = (draws(3).uniform(2, height, width) * (2 * reach)).long() - reach
    for (down, right), source in zip(moved.tolist(), found, strict=True):
        image = np.arange(height * width).reshape(height, width)
        for row in range(height - reach, reach, -1):
            for column in range(width - reach, reach, -1):
                image[row, column] = image[row + down[row][column], column + right[row][column]]
        assert source.tolist() == image.flatten().tolist()


def test_motion_is_a_line_to_one_side() -> None:
    image = torch.zeros(3, 1, 9, 9)
    image[:, 0, 4, 6] = 1
    found = blur.smeared(image, 3, 2, torch.tensor([0.0, 45.0, -90.0], dtype=torch.float64))
    weights = np.exp(-(np.arange(7) ** 2) / 8)
    weights /= weights.sum()
    np.testing.assert_allclose(found[0, 0, 4, :7].flip(0), weights, atol=1e-6)
    assert torch.equal(found[1, 0], torch.triu(torch.tril(found[1, 0], 2), 2))  # where row = column − 2
    assert found[2, 0, :, 6].tolist() == found[2, 0].sum(1).tolist()
    np.testing.assert_allclose(found[2, 0, 4:, 6], weights[:5], atol=1e-6)


# Weather


def test_clouds_are_a_diamond_square() -> None:
    decay, size = 1.5, 8
    found = weather.plasma(size, decay, draws(2))
    for noise_of, clouds in zip(draws(2).uniform(size, size).double() * 2 - 1, found, strict=True):
        field = torch.zeros(size, size, dtype=torch.float64)
        step, height = size, 100.0**2
        while step > 1:
            half = step // 2
            for corners, ways in (((half, half),), (-1, 1)), (((0, half), (half, 0)), (0,)):
                for down, right in corners:
                    for row in range(down, size, step):
                        for column in range(right, size, step):
                            if ways == (0,):
                                near = [(row - half, column), (row + half, column), (row, column - half)]
                                near.append((row, column + half))
                            else:
                                near = [(row + half * a, column + half * b) for a in ways for b in ways]
                            mean = sum(field[y % size, x % size] for y, x in near) / 4
                            field[row, column] = mean + height * noise_of[row, column]
            step, height = half, height / decay**2
        field = (field - field.min()) / (field.max() - field.min())
        torch.testing.assert_close(clouds.double(), field, atol=1e-5, rtol=0)


def test_fog_keeps_the_lightest_pixel_as_a_bound_and_frost_has_its_weights() -> None:
    images = natural(3, 32) // 2
    foggy = corrupt(images, "fog", 5)
    assert (foggy.amax((1, 2, 3)) <= images.amax((1, 2, 3))).all()
    black, grey = (corrupt(flat(value, 24, 32), "frost", 5).float() for value in (0, 40))
    assert (grey - black - 0.75 * 40).abs().max() <= 1  # the frost is the same
    assert (black[:, 2] >= black[:, 0]).all()  # and bluish
    assert 68 < black.mean() < 82  # 0.45 · 166, the mean of the published photographs, is 75


def test_snow_falls_twice_and_bleaches() -> None:
    snowy = corrupt(flat(0, 2, 64), "snow", 3)
    fallen = snowy.float() - 0.3 * 127.5
    assert torch.equal(snowy, snowy.flip(-2, -1))  # on black, where nothing but snow is seen
    assert fallen.min() > -1.1
    assert fallen.max() > 50


# Digital


def photograph(images: Tensor, index: int) -> Image.Image:
    return Image.fromarray(images[index].permute(1, 2, 0).numpy())


@pytest.mark.parametrize(("side", "n"), [(8, 32), (28, 8), (32, 8), (64, 4), (224, 2)])
def test_pillow_gives_nearly_the_same_jpeg_and_just_the_same_pixels(side: int, n: int) -> None:
    images = natural(n, side)
    near = min((32, 64, 224), key=lambda each: abs(each - side))
    for severity in SEVERITIES:
        coded, coarse = (corrupt(images, name, severity) for name in ("jpeg_compression", "pixelate"))
        apart = []
        for i in range(n):
            image, file = photograph(images, i), io.BytesIO()
            image.save(file, "JPEG", quality=PARAMETERS["jpeg_compression"][near][severity - 1])
            apart.append(np.abs(np.asarray(Image.open(file), float) - np.asarray(photograph(coded, i), float)).mean())
            small = int(side * PARAMETERS["pixelate"][near][severity - 1])
            expected = image.resize((small, small), Image.Resampling.BOX).resize((side, side), Image.Resampling.BOX)
            assert np.array_equal(np.asarray(expected), np.asarray(photograph(coarse, i)))
        assert np.mean(apart) < 0.4  # a coefficient between two steps may fall to the other side


def test_the_value_and_saturation_are_those_of_hsv() -> None:
    images = natural(1, 8)
    images[0, :, 0, 0], images[0, :, 0, 1] = 0, 90  # black and grey
    pixels = images[0].flatten(1).T.tolist()
    for name, severity in (("brightness", 1), ("brightness", 5), ("saturate", 1), ("saturate", 4), ("saturate", 5)):
        setting = PARAMETERS[name][32][severity - 1]
        found = corrupt(images, name, severity)[0].flatten(1).T
        for pixel, spoiled in zip(pixels, found.tolist(), strict=True):
            hue, saturation, value = colorsys.rgb_to_hsv(*(each / 255 for each in pixel))
            if name == "brightness":
                value = min(value + setting, 1)
            else:
                saturation = min(saturation * setting[0] + setting[1], 1)
            expected = colorsys.hsv_to_rgb(hue, saturation, value)
            assert spoiled == [math.floor(255 * each + matrices.SLACK) for each in expected]


def test_contrast_leaves_the_mean_and_a_share_of_the_rest() -> None:
    images = natural(2, 32).double()
    mean = images.mean((2, 3), keepdim=True)
    expected = (mean + 0.15 * (images - mean) + matrices.SLACK).to(torch.uint8)
    assert torch.equal(corrupt(natural(2, 32), "contrast", 5), expected)


def test_the_elastic_transform_samples_like_scipy() -> None:
    images = natural(2, 20, 1).float()
    places = digital._pixels(20, 20, images.device) + 30 * (draws(2).uniform(2, 20, 20).double() - 0.5)
    for edges, mode in ((False, "mirror"), (True, "reflect")):
        found = digital._sampled(images, places, edges)
        for image, (x, y), sampled in zip(images[:, 0], places, found[:, 0], strict=True):
            expected = ndimage.map_coordinates(image.double().numpy(), [y.numpy(), x.numpy()], order=1, mode=mode)
            np.testing.assert_allclose(sampled, expected, atol=2e-2)


def test_the_affine_map_takes_three_points_to_where_they_were_moved() -> None:
    places = digital._affine(30, 30, 2.0, draws(4))  # [n, 2, H, W]
    moved = (draws(4).uniform(3, 2).double() * 2 - 1) * 2
    before = torch.tensor([[25, 25], [25, 5], [5, 5]]).double()
    corner, across, down = places[:, :, 0, 0], places[:, :, 0, 1], places[:, :, 1, 0]
    for point, move in zip(before, moved.unbind(1), strict=True):
        x, y = (point + move).unbind(1)
        shown = corner + (across - corner) * x[:, None] + (down - corner) * y[:, None]
        torch.testing.assert_close(shown, point.expand(4, -1), atol=1e-9, rtol=0)


# Spatter


def test_edges_distances_and_levels() -> None:
    drops = torch.zeros(1, 24, 24, dtype=torch.uint8)
    drops[:, 8:16, 8:16] = 200
    found = weather.edges(drops)[0]
    inner, outer = ndimage.binary_erosion(drops[0] > 0, np.ones((3, 3))), ndimage.binary_dilation(drops[0] > 0)
    assert not found[torch.from_numpy(inner)].any()
    assert not found[torch.from_numpy(~ndimage.binary_dilation(outer))].any()
    assert found.any(0)[8:15].all()
    assert found.any(1)[8:15].all()
    assert not weather.edges(torch.full((1, 9, 9), 100, dtype=torch.uint8)).any()

    marked = draws(3).uniform(40, 30) < torch.tensor([0.3, 0.01, 0.0])[:, None, None]
    for one, distance in zip(marked, weather._distance(marked), strict=True):
        expected = ndimage.distance_transform_edt(~one.numpy()) if one.any() else np.full((40, 30), 99.0)
        np.testing.assert_allclose(distance, np.minimum(expected, 20), atol=1e-5)

    levels = torch.tensor([[[3, 3], [5, 9]], [[4, 4], [4, 4]]])
    assert weather._equalised(levels).tolist() == [[[0, 0], [128, 255]], [[4, 4], [4, 4]]]


def test_mud_hides_and_water_lights() -> None:
    images = natural(4, 64)
    muddy, wet = corrupt(images, "spatter", 5), corrupt(images, "spatter", 1)
    mud = torch.tensor(weather.MUD)[:, None, None]
    changed = (muddy != images).any(1)
    assert 0.01 < changed.float().mean() < 0.5
    assert ((muddy.int() - mud).abs() <= (images.int() - mud).abs() * 0.2 + 1).movedim(1, -1)[changed].all()
    assert (wet >= images).all()
    assert (wet > images).any()
