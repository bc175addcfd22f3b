"""Digital: light, contrast, saturation, shape and resolution."""

import torch
from torch import Tensor
from torch.nn import functional as F

from subspaces.evaluation.corruptions.draws import Draws
from subspaces.evaluation.corruptions.matrices import box, cut, gaussian, mirrored, product, rounded


def brightness(images: Tensor, more: float, draws: Draws) -> Tensor:
    """Raise the value of HSV: the largest channel, and the others in proportion."""
    x = images.float()
    value = x.amax(1, keepdim=True)
    raised = (value + 255 * more).clamp_(max=255)
    return cut(torch.where(value > 0, x * (raised / value.clamp(min=1)), raised))


def saturate(images: Tensor, setting: tuple[float, float], draws: Draws) -> Tensor:
    """Change the saturation of HSV, at equal value and hue; grey counts as red, whose hue is 0."""
    factor, summand = setting
    x = images.float()
    value = x.amax(1, keepdim=True)
    spread = value - x.amin(1, keepdim=True)
    saturation = spread / value.clamp(min=1)
    changed = (factor * saturation + summand).clamp_(0, 1)
    red = torch.tensor([0.0, 1.0, 1.0], device=x.device)[:, None, None]
    away = torch.where(spread > 0, (value - x) / spread.clamp(min=1), red)  # how far below the value: 0 to 1
    return cut(value * (1 - changed * away))


def contrast(images: Tensor, share: float, draws: Draws) -> Tensor:
    """Bring all pixels nearer to the mean of their channel."""
    mean = images.double().mean((2, 3), keepdim=True)
    return cut(mean + (images - mean) * share)


def pixelate(images: Tensor, share: float, draws: Draws) -> Tensor:
    """Make the image smaller and large again, without smoothing."""
    height, width = images.shape[-2:]
    low, narrow = max(int(height * share), 1), max(int(width * share), 1)
    still = torch.eye(height, dtype=torch.float64)[None]
    small = rounded(product(images, still, box(width, narrow)))  # Pillow rounds after each direction
    small = rounded(product(small, box(height, low), torch.eye(narrow, dtype=torch.float64)[None]))
    rows, columns = (matrix.argmax(2)[0].to(images.device) for matrix in (box(low, height), box(narrow, width)))
    return small[..., rows[:, None], columns]


def elastic_transform(images: Tensor, setting: tuple[float, float, float], draws: Draws) -> Tensor:
    """Map three points near others, and the rest linearly; then displace pixels along a smooth random field."""
    height, width = images.shape[-2:]
    side = min(height, width)
    strength, sigma, corners = (side * value for value in setting)
    x = _sampled(images.float(), _affine(height, width, corners, draws), edges=False)
    if strength:
        noise = draws.uniform(2, height, width).double().mul_(2).sub_(1)
        blurs = (gaussian(length, sigma, mirrored, 3) for length in (height, width))
        x = _sampled(x, _pixels(height, width, noise.device) + strength * product(noise, *blurs), edges=True)
    return cut(x)


def _pixels(height: int, width: int, device: torch.device) -> Tensor:
    """Return the place of each pixel, (x, y) [2, H, W]."""
    rows, columns = (torch.arange(side, device=device, dtype=torch.float64) for side in (height, width))
    return torch.stack([columns.expand(height, -1), rows[:, None].expand(-1, width)])


def _affine(height: int, width: int, corners: float, draws: Draws) -> Tensor:
    """Return which place of the image each pixel shows, [n, 2, H, W], if three points are moved at random."""
    middle = torch.tensor([width // 2, height // 2], dtype=torch.float64)
    arm = max(min(height, width) // 3, 1)
    before = middle + arm * torch.tensor([[1, 1], [1, -1], [-1, -1]], dtype=torch.float64)
    solved = torch.linalg.inv(torch.cat([before, torch.ones(3, 1, dtype=torch.float64)], 1)).to(draws.device)
    moved = (draws.uniform(3, 2).double() * 2 - 1) * corners + before.to(draws.device)
    forward = (solved @ moved).mT  # [n, 2, 3]: new place = A · place + t
    (a, b, tx), (c, d, ty) = (row.unbind(-1) for row in forward.unbind(1))
    determinant = a * d - b * c
    determinant = torch.where(determinant.abs() < 1e-3, determinant.sign() * 1e-3 + 1e-6, determinant)
    inverse = torch.stack([d, -b, -c, a], 1).view(-1, 2, 2) / determinant[:, None, None]
    places = _pixels(height, width, draws.device).flatten(1) - torch.stack([tx, ty], 1)[:, :, None]
    return (inverse @ places).view(-1, 2, height, width)


def _sampled(images: Tensor, places: Tensor, edges: bool) -> Tensor:
    """Interpolate linearly at places [n, 2, H, W], mirrored at the edges of the outermost pixels or at their middle."""
    size = torch.tensor(images.shape[:1:-1], device=places.device, dtype=torch.float64)[:, None, None]  # (W, H)
    scaled = (2 * places + 1) / size - 1 if edges else 2 * places / (size - 1).clamp(min=1) - 1
    grid = scaled.movedim(1, -1).to(images.dtype)
    return F.grid_sample(images, grid, "bilinear", "reflection", align_corners=not edges)
