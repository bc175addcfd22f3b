"""The convolution: torch's own, and on a GPU kernels that give what torch gives in float64."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.testing import assert_close

from subspaces.networks.models import Conv2d

LAYERS = {  # inputs, outputs, size of the kernel, stride, side of the image: those of cResNet20, and one between
    "stem": (3, 16, 3, 1, 32),
    "first stage": (16, 16, 3, 1, 32),
    "to the second": (16, 32, 3, 2, 32),
    "shortcut": (16, 32, 1, 2, 32),
    "second stage": (32, 32, 3, 1, 16),
    "to the third": (32, 64, 3, 2, 16),
    "third stage": (64, 64, 3, 1, 8),
    "24 inputs": (24, 32, 3, 1, 16),
    "48 inputs, no neighbours": (48, 64, 1, 2, 16),
}
gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]


def test_it_is_torchs_convolution_on_a_cpu():
    torch.manual_seed(0)
    ours, x = Conv2d(3, 8, 3, 2, padding=1, bias=False), torch.randn(4, 3, 16, 16)
    theirs = nn.Conv2d(3, 8, 3, 2, padding=1, bias=False)
    theirs.load_state_dict(ours.state_dict())
    assert torch.equal(ours(x), theirs(x))
    compiled = torch.compile(ours, backend="eager")
    assert torch.equal(compiled(x), theirs(x))


@pytest.mark.parametrize(
    ("layer", "simple"),
    [
        (Conv2d(16, 16, 3, padding=1, bias=False), True),
        (Conv2d(16, 16, 1, 2, bias=False), True),
        (Conv2d(16, 16, 3, padding=1), False),
        (Conv2d(16, 16, 3, bias=False), False),
        (Conv2d(16, 16, 3, padding="same", bias=False), False),
        (Conv2d(16, 16, (1, 3), padding=(0, 1), bias=False), False),
        (Conv2d(16, 16, 3, (1, 2), padding=1, bias=False), False),
        (Conv2d(16, 16, 3, padding=1, groups=2, bias=False), False),
        (Conv2d(16, 16, 3, padding=1, dilation=2, bias=False), False),
        (Conv2d(16, 16, 3, padding=1, bias=False, padding_mode="reflect"), False),
    ],
    ids=["3x3", "1x1", "bias", "no padding", "same", "1x3", "strides", "groups", "dilation", "reflect"],
)
def test_what_the_kernels_do_not_know_is_left_to_torch(layer, simple):
    assert layer._simple() is simple


def _operands(name: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    inputs, outputs, size, stride, side = LAYERS[name]
    torch.manual_seed(0)

    def made(*shape: int) -> torch.Tensor:
        return torch.randn(shape, device="cuda").bfloat16().to(memory_format=torch.channels_last)

    images, weights = made(128, inputs, side, side), made(outputs, inputs, size, size)
    return images, weights, made(128, outputs, side // stride, side // stride), stride


def _several(name: str, networks: int = 3) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, int]:
    """The operands of several networks, as in training: images of a longer batch, weights that are part of a row."""
    x, weight, dy, stride = _operands(name)
    images = torch.randn(networks, 2 * len(x), *x.shape[2:], x.shape[1], device="cuda").bfloat16()
    rows = torch.randn(networks, 16 + weight.numel(), device="cuda").bfloat16()
    outputs, inputs, size, _ = weight.shape
    weights = rows[:, 16:].view(networks, outputs, size, size, inputs)
    return images[:, len(x) :].movedim(-1, 2), weights.movedim(-1, 2), torch.stack([dy, -dy, 2 * dy]), stride


def _gradients(function, x, weight, dy):
    x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
    y = function(x, weight)
    y.backward(dy)
    return y.detach(), x.grad, weight.grad


class TestKernels:
    pytestmark = gpu

    @pytest.mark.parametrize("name", LAYERS)
    def test_they_are_a_convolution_and_its_gradients(self, name):
        """Each number is off by at most the rounding of bfloat16, 2^-8 of the largest."""
        from subspaces.networks import kernels

        x, weight, dy, stride = _operands(name)
        assert kernels.fits(x, weight, stride)
        found = _gradients(lambda x, w: kernels.convolve(x, w, stride), x, weight, dy)
        padding = weight.shape[2] // 2
        exact = (value.double() for value in (x, weight, dy))
        expected = _gradients(lambda x, w: F.conv2d(x, w, None, stride, padding), *exact)
        for value, right in zip(found, expected, strict=True):
            assert_close(value.double(), right, rtol=0, atol=float(right.abs().max()) / 256)

    def test_the_same_sum_every_time(self):
        from subspaces.networks import kernels

        x, _, dy, stride = _operands("first stage")
        parts = [kernels.weight_gradient(dy, x, 3, stride) for _ in range(3)]
        assert torch.equal(parts[0], parts[1])
        assert torch.equal(parts[0], parts[2])

    @pytest.mark.parametrize("name", ["stem", "to the second", "shortcut", "third stage"])
    def test_several_networks_at_once_are_each_alone(self, name):
        from subspaces.networks import kernels

        *operands, stride = _several(name)

        def convolve(x, weight):
            return kernels.convolve(x, weight, stride)

        found = _gradients(torch.vmap(convolve), *operands)
        alone = [_gradients(convolve, *each) for each in zip(*operands, strict=True)]
        for value, right in zip(found, map(torch.stack, zip(*alone, strict=True)), strict=True):
            assert_close(value, right, rtol=0, atol=float(right.abs().max()) / 256)

    def test_several_networks_in_any_order_of_memory_and_with_shared_images(self):
        from subspaces.networks import kernels

        x, weight, _, stride = _several("to the second")

        def convolve(x, weight):
            assert kernels.fits(x, weight, stride)
            return kernels.convolve(x, weight, stride)

        expected = torch.vmap(convolve)(x, weight)
        among = x.movedim(0, 1).contiguous().movedim(1, 0)  # channels first, and the networks between images and them
        assert torch.equal(torch.vmap(convolve)(among, weight), expected)
        shared = torch.vmap(convolve, (None, 0))(x[0], weight)
        assert torch.equal(shared[0], expected[0])
        assert torch.equal(shared[1], convolve(x[0], weight[1]))

    def test_the_gradient_of_images_is_computed_only_for_those_who_ask(self, monkeypatch):
        from subspaces.networks import kernels

        x, weight, dy, stride = _several("stem")
        library, calls = kernels._library, []
        monkeypatch.setattr(kernels, "_library", lambda *operands: (calls.append(operands), library(*operands))[1])
        weight = weight.detach().requires_grad_()
        for wanted in (False, True):
            torch.vmap(lambda x, w: kernels.convolve(x, w, stride))(x.requires_grad_(wanted), weight).backward(dy)
            assert bool(calls) is wanted

    @pytest.mark.parametrize(
        "change",
        [
            lambda x, w: (x.float(), w),
            lambda x, w: (x.contiguous(), w),
            lambda x, w: (x[:100], w),  # pixels that cannot be divided
            lambda x, w: (x, w.repeat(8, 1, 1, 1)),  # 128 channels
            lambda x, w: (x.cpu(), w.cpu()),
        ],
        ids=["float32", "channels first", "batch of 100", "128 channels", "cpu"],
    )
    def test_what_they_cannot_take(self, change):
        from subspaces.networks import kernels

        x, weight, _, stride = _operands("first stage")
        assert not kernels.fits(*change(x, weight), stride)

    @pytest.mark.filterwarnings("ignore")  # what the compiler's own parts warn of
    def test_a_compiled_layer_uses_them_under_autocast(self):
        x, _, _, _ = _operands("first stage")
        layer = Conv2d(16, 16, 3, padding=1, bias=False).cuda().to(memory_format=torch.channels_last)
        with torch.autocast("cuda", torch.bfloat16):
            expected = layer(x)
            with torch.profiler.profile() as profile:
                found = torch.compile(layer)(x)
        assert any("subspaces::convolve" in event.key for event in profile.key_averages())
        assert_close(found, expected, rtol=0, atol=float(expected.abs().max()) / 128)

    @pytest.mark.filterwarnings("ignore")
    def test_the_compiled_layers_of_several_networks_are_one_call(self):
        x, weights, _, _ = _several("first stage")
        layer = Conv2d(16, 16, 3, padding=1, bias=False).cuda().to(memory_format=torch.channels_last)
        norm = nn.BatchNorm2d(16, affine=False, track_running_stats=False).cuda()  # which moves the networks

        def network(weight, x):
            return torch.func.functional_call(layer, {"weight": weight}, (norm(x),))

        with torch.autocast("cuda", torch.bfloat16):
            expected = torch.stack([network(*each) for each in zip(weights, x, strict=True)])
            compiled = torch.compile(torch.vmap(network))
            compiled(weights, x)
            with torch.profiler.profile() as profile:
                found = compiled(weights, x)
        assert sum(event.count for event in profile.key_averages() if event.key == "subspaces::convolve") == 1
        assert_close(found, expected, rtol=0, atol=float(expected.abs().max()) / 128)
