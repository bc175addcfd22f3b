"""Networks whose steps are timed: how each is made, what it is fed, and which optimiser trains it.

ResNet-50 and ViT-B/16 are torchvision's where it can be imported, else transformers'; GPT-2 is transformers'. All have
random weights, made from their configuration. Smaller ones have the same parts, fewer or narrower.
"""

import importlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

import subspaces as ss
from subspaces.networks import MLP, CResNet20

Batch = tuple[Tensor, Tensor]
Optimizer = Callable[[Iterable[nn.Parameter], bool], torch.optim.Optimizer]
"""Makes one, fused or not: torch has no fused SGD for weights that are cut over processes."""


@dataclass(frozen=True)
class Subject:
    """A network with its batches; `tokens` is its vocabulary, 0 for one that classifies images."""

    make: Callable[[], nn.Module]
    shapes: dict[str, ss.Shape | None]
    batch: int
    size: int  # of a side of an image, or of a text
    optimizer: Optimizer
    classes: int = 1000
    tokens: int = 0
    channels: int = 3

    def example(self, batch: int, device: str, channels_last: bool) -> Batch:
        """Return random inputs and targets."""
        if self.tokens:
            text = torch.randint(self.tokens, (batch, self.size + 1), device=device)
            return text[:, :-1].contiguous(), text[:, 1:].contiguous()
        images = torch.randn(batch, self.channels, self.size, self.size, device=device)
        if channels_last:
            images = images.to(memory_format=torch.channels_last)
        return images, torch.randint(self.classes, (batch,), device=device)


class Logits(nn.Module):
    """A model of transformers as a network: from one tensor to another."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        return self.model(x).logits  # type: ignore[no-any-return]


def _transformers(model: str, config: str, **settings: Any) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        import transformers

        return Logits(getattr(transformers, model)(getattr(transformers, config)(**settings)))

    return make


def _torchvision(name: str, otherwise: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        try:
            models: Any = importlib.import_module("torchvision.models")
        except ImportError:
            return otherwise()
        return models.get_model(name, weights=None)  # type: ignore[no-any-return]

    return make


def _sgd(parameters: Iterable[nn.Parameter], fused: bool) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4, fused=fused)


def _own_sgd(parameters: Iterable[nn.Parameter], fused: bool) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9, weight_decay=1e-4)  # as the README writes it


def _adamw(parameters: Iterable[nn.Parameter], fused: bool) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4, weight_decay=0.1, fused=fused)


def _resnet(**settings: Any) -> Callable[[], nn.Module]:
    return _transformers("ResNetForImageClassification", "ResNetConfig", num_labels=1000, **settings)


def _vit(**settings: Any) -> Callable[[], nn.Module]:
    return _transformers("ViTForImageClassification", "ViTConfig", num_labels=1000, **settings)


def _narrow(width: int, layers: int) -> dict[str, int]:
    return {
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": width // 32,
        "intermediate_size": 4 * width,
    }


def _gpt2(**settings: Any) -> Callable[[], nn.Module]:
    dropout = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
    ends = dict.fromkeys(("bos_token_id", "eos_token_id"), 0)
    return _transformers("GPT2LMHeadModel", "GPT2Config", use_cache=False, **dropout, **ends, **settings)


PAPER: dict[str, ss.Shape | None] = {
    "plain": None,
    "line": ss.Line(),
    "curve": ss.Bezier(1),
    "simplex 6": ss.Simplex(6),
    "plain again": None,
}
LARGE: dict[str, ss.Shape | None] = {
    "plain": None,
    "line": ss.Line(),
    "simplex 3": ss.Simplex(3),
    "plain again": None,
}
LAYERWISE = "layerwise "
"""How the name of a variant with one alpha for each layer begins."""
OWN_LOOP: dict[str, ss.Shape | None] = {
    "plain": None,
    "line": ss.Line(),
    "simplex 3": ss.Simplex(3),
    LAYERWISE + "line": ss.Line(),
    "plain again": None,
}
DIGITS = Subject(MLP, PAPER, 128, 8, _sgd, classes=10, channels=1)
WIDE = Subject(partial(MLP, width=128), OWN_LOOP, 128, 8, _own_sgd, classes=10, channels=1)  # 64-128-128-10
SUBJECTS = {  # by size: as published; for a CPU to be measured; for a test
    "full": {
        "cresnet20": Subject(CResNet20, PAPER, 128, 32, _sgd, classes=10),
        "mlp": DIGITS,
        "mlp-128": WIDE,
        "resnet50": Subject(_torchvision("resnet50", _resnet()), LARGE, 256, 224, _sgd),
        "vit-b16": Subject(_torchvision("vit_b_16", _vit()), LARGE, 256, 224, _adamw),
        "gpt2": Subject(_gpt2(), LARGE, 8, 1024, _adamw, tokens=50257),
    },
    "medium": {
        "cresnet20": Subject(CResNet20, PAPER, 32, 32, _sgd, classes=10),
        "mlp": DIGITS,
        "mlp-128": WIDE,
        "resnet50": Subject(_resnet(), LARGE, 16, 96, _sgd),
        "vit-b16": Subject(_vit(**_narrow(256, 6), image_size=96), LARGE, 32, 96, _adamw),
        "gpt2": Subject(_gpt2(n_embd=256, n_layer=6, n_head=4, vocab_size=8192), LARGE, 8, 128, _adamw, tokens=8192),
    },
    "small": {
        "cresnet20": Subject(CResNet20, PAPER, 2, 32, _sgd, classes=10),
        "mlp": DIGITS,
        "mlp-128": WIDE,
        "resnet50": Subject(
            _resnet(embedding_size=16, hidden_sizes=[32, 64, 128, 256], depths=[1, 1, 2, 1]), LARGE, 2, 64, _sgd
        ),
        "vit-b16": Subject(_vit(**_narrow(64, 2), image_size=64), LARGE, 2, 64, _adamw),
        "gpt2": Subject(_gpt2(n_embd=64, n_layer=2, n_head=2, vocab_size=512), LARGE, 2, 64, _adamw, tokens=512),
    },
}
SIZES = tuple(SUBJECTS)
NETWORKS = tuple(SUBJECTS["full"])
