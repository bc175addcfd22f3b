"""Convolutions of few channels on a GPU.

With 16 to 64 channels a convolution moves little data and computes little, and most of the time of a
library's kernel goes into tiles that are larger than the problem. These have tiles of its size.

Images are bfloat16 with channels last in memory, rows [N H W, C], and weights are [K, R, R, C], padded
to keep the size. R neighbouring pixels of a row are then R C numbers in a row: with j = (s, c), and for R = 3,

    y[p, q, k]  = Σ_r Σ_j x[p + r - 1, q - 1 + j / C, j % C] w[k, r, j]
    dw[k, r, j] = Σ_{n,p,q} dy[n, p, q, k] x[n, p + r - 1, q - 1 + j / C, j % C]

each a product of matrices for every r; the gradient of x is the first of them with dy for x and the
weights turned around. The sum over the pixels is taken in parts, in float32 and in a fixed order.

With one more dimension in front, images and weights are those of several networks, which one launch serves;
`torch.vmap` makes it so.
"""

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch._C._functorch import is_batchedtensor


@triton.jit
def _convolve(  # type: ignore[no-untyped-def]
    x, w, y, x_step, w_step, y_step,
    H: tl.constexpr, W: tl.constexpr, STRIDE: tl.constexpr, C: tl.constexpr, K: tl.constexpr,  # noqa: N803
    R: tl.constexpr, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, TURNED: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """BLOCK pixels of y; TURNED: x is dy [.., C], y is dx [.., K], and w the weights [C, R, R, K].

    H and W are the sides of the larger images, before the stride. Turned, the smaller ones are spread
    out over the larger, with zeros between their pixels. From one network to the next, x is x_step numbers on.
    """
    network = tl.program_id(1).to(tl.int64)
    x += network * x_step
    w += network * w_step
    y += network * y_step
    DOWN: tl.constexpr = 1 if TURNED else STRIDE  # noqa: N806
    UP: tl.constexpr = STRIDE if TURNED else 1  # noqa: N806
    P: tl.constexpr = H // DOWN  # noqa: N806
    Q: tl.constexpr = W // DOWN  # noqa: N806
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q, p, n = pixel % Q, (pixel // Q) % P, pixel // (P * Q)
    j, k = tl.arange(0, COLUMNS), tl.arange(0, K)
    s, c = j // C, j % C
    across = (q * DOWN - R // 2)[:, None] + s[None, :]
    wide = (across >= 0) & (across < W) & (across % UP == 0) & (j < R * C)[None, :]
    total = tl.zeros([BLOCK, K], tl.float32)
    for r in tl.static_range(R):
        row = p * DOWN + r - R // 2
        there = (row >= 0) & (row < H) & (row % UP == 0)
        if UP == 1:
            places = (((n * H + row) * W + q * DOWN - R // 2) * C)[:, None] + j[None, :]
        else:
            places = ((n * (H // UP) + row // UP) * (W // UP))[:, None] + across // UP
            places = places * C + c[None, :]
        image = tl.load(x + places, mask=wide & there[:, None], other=0.0)
        if TURNED:
            places = (c * (R * R) + (R - 1 - r) * R + (R - 1 - s))[:, None] * K + k[None, :]
        else:
            places = (r * R * C + j)[:, None] + k[None, :] * (R * R * C)
        total = tl.dot(image, tl.load(w + places, mask=(j < R * C)[:, None], other=0.0), total)
    tl.store(y + pixel[:, None] * K + k[None, :], total.to(y.dtype.element_ty))


@triton.jit
def _weight_gradient(  # type: ignore[no-untyped-def]
    dy, x, partial, dy_step, x_step, partial_step,
    H: tl.constexpr, W: tl.constexpr, STRIDE: tl.constexpr, C: tl.constexpr, K: tl.constexpr,  # noqa: N803
    R: tl.constexpr, SPAN: tl.constexpr, COLUMNS: tl.constexpr,  # noqa: N803
    PIXELS: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    """The sum over PIXELS pixels, for SPAN of the R² places of a weight."""
    network = tl.program_id(2).to(tl.int64)
    dy += network * dy_step
    x += network * x_step
    partial += network * partial_step
    P: tl.constexpr = H // STRIDE  # noqa: N806
    Q: tl.constexpr = W // STRIDE  # noqa: N806
    chunk, first = tl.program_id(0), tl.program_id(1) * SPAN
    r, s = first // R, first % R
    j, k = tl.arange(0, COLUMNS), tl.arange(0, K)
    shift = s - R // 2 + j // C
    total = tl.zeros([K, COLUMNS], tl.float32)
    for start in range(0, PIXELS, BLOCK):
        pixel = chunk * PIXELS + start + tl.arange(0, BLOCK)
        q, p, n = pixel % Q, (pixel // Q) % P, pixel // (P * Q)
        row = p * STRIDE + r - R // 2
        across = (q * STRIDE)[:, None] + shift[None, :]
        inside = ((row >= 0) & (row < H))[:, None] & (across >= 0) & (across < W) & (j < SPAN * C)[None, :]
        begin = ((n * H + row) * W + q * STRIDE + s - R // 2) * C
        image = tl.load(x + begin[:, None] + j[None, :], mask=inside, other=0.0)
        gradient = tl.load(dy + pixel[:, None] * K + k[None, :])
        total = tl.dot(tl.trans(gradient), image, total)
    places = chunk * (R * R * C * K) + k[:, None] * (R * R * C) + first * C + j[None, :]
    tl.store(partial + places, total, mask=(j < SPAN * C)[None, :])


WIDTHS = (16, 32, 64)  # outputs that a tile can hold
PARTS = 128  # of the sum over all pixels, at most


def _each(pixels: int) -> int:
    """Return how many pixels are summed in one part."""
    return max(256, pixels // PARTS)


def _power(number: int) -> int:
    """Return the least power of two that a matrix product takes and that is not below `number`."""
    return max(16, 1 << (number - 1).bit_length())


def _last(x: Tensor) -> bool:
    """Return whether channels are last in memory; of several networks, within each."""
    _, channels, height, width = x.shape[-4:]
    steps = (height * width * channels, 1, width * channels, channels)
    every = zip(x.shape[-4:], x.stride()[-4:], steps, strict=True)
    return all(size == 1 or found == wanted for size, found, wanted in every)


def _arranged(x: Tensor) -> Tensor:
    """Return a tensor with channels last in memory: itself, if it can be."""
    return x if _last(x) else x.movedim(-3, -1).contiguous().movedim(-1, -3)


def fits(x: Tensor, weight: Tensor, stride: int) -> bool:
    """Return whether these kernels can take a batch of images and the weights of a convolution.

    Within `torch.vmap` these are of one network. Images of several are arranged as the kernels need them, whatever
    the operation before has made of them: torch's batch norm puts the networks among the channels.
    """
    (images, channels, height, width), (outputs, _, size, _) = x.shape, weight.shape
    pixels = images * height * width // stride**2
    return (
        x.is_cuda
        and x.dtype == weight.dtype == torch.bfloat16
        and channels <= 64
        and outputs in WIDTHS
        and size in (1, 3)
        and height % stride == width % stride == 0
        and max(x.numel(), pixels * outputs) < 2**31  # places within a network are counted with 32 bits
        and pixels % _each(pixels) == 0
        and _each(pixels) % 256 == 0
        and (_last(x) or is_batchedtensor(x))
        and _last(weight)
    )


def _networks(x: Tensor, *others: Tensor) -> tuple[int, list[int]]:
    """Return how many networks these tensors are of, and for each the step from one to the next (0 for one alone)."""
    several = x.ndim == 5
    return len(x) if several else 1, [each.stride(0) if several else 0 for each in (x, *others)]


def _pixels(x: Tensor) -> int:
    """Return how many pixels the images of one network have."""
    images, _, height, width = x.shape[-4:]
    return images * height * width


def _launch(x: Tensor, weight: Tensor, y: Tensor, stride: int, turned: bool) -> Tensor:
    channels, outputs, size = x.shape[-3], y.shape[-3], weight.shape[-1]
    height, width = (y if turned else x).shape[-2:]
    block = 4096 // max(16, channels, outputs)
    networks, steps = _networks(x, weight, y)
    with torch.cuda.device_of(x):
        _convolve[(_pixels(y) // block, networks)](
            x, weight, y, *steps, height, width, stride, channels, outputs, size, _power(size * channels), block,
            turned, num_warps=4,
        )  # fmt: skip
    return y


@torch.library.custom_op("subspaces::convolve", mutates_args=())
def convolve(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Return the convolution of images with weights, padded to keep their size before the stride."""
    return _launch(x, weight, _outputs(x, weight, stride), stride, turned=False)


@torch.library.custom_op("subspaces::convolve_turned", mutates_args=())
def convolve_turned(dy: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Return the gradient of the images."""
    return _launch(dy, weight, _inputs(dy, weight, stride), stride, turned=True)


@torch.library.custom_op("subspaces::weight_gradient", mutates_args=())
def weight_gradient(dy: Tensor, x: Tensor, size: int, stride: int) -> Tensor:
    """Return the gradient of the weights in parts, float32 [parts, K, R, R, C], to be summed."""
    (channels, height, width), outputs = x.shape[-3:], dy.shape[-3]
    span = size if outputs <= 32 else 1
    parts: Tensor = _parts(dy, x, size, stride)
    block = 128 if outputs <= 32 else 64
    networks, steps = _networks(dy, x, parts)
    with torch.cuda.device_of(x):
        _weight_gradient[(parts.shape[-5], size * size // span, networks)](
            dy, x, parts, *steps, height, width, stride, channels, outputs, size, span, _power(span * channels),
            _each(_pixels(dy)), block, num_warps=4, num_stages=3,
        )  # fmt: skip
    return parts


@convolve.register_fake
def _outputs(x: Tensor, weight: Tensor, stride: int) -> Tensor:
    shape = (x.shape[-2] // stride, x.shape[-1] // stride, weight.shape[-4])
    return torch.empty((*x.shape[:-3], *shape), dtype=x.dtype, device=x.device).movedim(-1, -3)


@convolve_turned.register_fake
def _inputs(dy: Tensor, weight: Tensor, stride: int) -> Tensor:
    shape = (dy.shape[-2] * stride, dy.shape[-1] * stride, weight.shape[-3])
    return torch.empty((*dy.shape[:-3], *shape), dtype=dy.dtype, device=dy.device).movedim(-1, -3)


@weight_gradient.register_fake
def _parts(dy: Tensor, x: Tensor, size: int, stride: int) -> Tensor:
    pixels = _pixels(dy)
    shape = (pixels // _each(pixels), dy.shape[-3], size, size, x.shape[-3])
    return torch.empty((*dy.shape[:-4], *shape), device=x.device)


@convolve.register_vmap
def _(info: Any, dims: tuple[int | None, ...], x: Tensor, weight: Tensor, stride: int) -> tuple[Tensor, int]:
    """Serve several networks at once; what all of them share is not copied."""
    x, weight = (
        _arranged(value.expand(info.batch_size, *value.shape) if dim is None else value.movedim(dim, 0))
        for value, dim in zip((x, weight), dims[:2], strict=True)
    )
    if x.ndim > 5:  # one vmap in another
        return torch.stack([convolve(*each, stride) for each in zip(x, weight, strict=True)]), 0
    return convolve(x, weight, stride), 0


def _keep(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, ctx.stride = inputs
    ctx.save_for_backward(x, weight)


def _differentiate(ctx: Any, dy: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
    x, weight = ctx.saved_tensors
    dy = _arranged(dy)
    dx = dw = None
    if ctx.needs_input_grad[0]:
        known = weight.shape[-3] in WIDTHS
        dx = convolve_turned(dy, weight, ctx.stride) if known else _library(dy, x, weight, ctx.stride)
    if ctx.needs_input_grad[1]:
        parts = weight_gradient(dy, x, weight.shape[-1], ctx.stride)
        dw = parts.sum(-5).to(weight.dtype).movedim(-1, -3)
    return dx, dw, None


def _library(dy: Tensor, x: Tensor, weight: Tensor, stride: int) -> Tensor:
    """Return the gradient of images of another number of channels, such as the first ones of a network."""
    if dy.ndim == 5:
        return torch.stack([_library(*each, stride) for each in zip(dy, x, weight, strict=True)])
    padding = [weight.shape[2] // 2] * 2
    dx: Tensor = torch.ops.aten.convolution_backward(
        dy, x, weight, None, [stride] * 2, padding, [1, 1], False, [0, 0], 1, [True, False, False]
    )[0]
    return dx


convolve.register_autograd(_differentiate, setup_context=_keep)
