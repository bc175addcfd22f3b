"""Optimiser groups that a function makes of one network, as those of a family of it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

import subspaces as ss


class Net(nn.Module):
    """A small transformer's parts, by the usual names, with a frozen and a tied parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(7, 4)
        self.attention, self.LayerNorm = nn.Linear(4, 4), nn.LayerNorm(4)
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.head, self.score = nn.Linear(4, 7, bias=False), nn.Linear(4, 2)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.frozen(self.LayerNorm(self.attention(self.embed(tokens)).tanh()))
        return self.head(x).log_softmax(-1).square().mean() + self.score(x).square().mean()


def nano_gpt(net: nn.Module) -> list[dict[str, Any]]:
    found = {name: p for name, p in net.named_parameters() if p.requires_grad}
    decay = [p for p in found.values() if p.dim() >= 2]
    rest = [p for p in found.values() if p.dim() < 2]
    return [{"params": decay, "weight_decay": 0.3}, {"params": rest, "weight_decay": 0.0}]


def configured(net: nn.Module) -> list[dict[str, Any]]:
    return torch.optim.SGD(nano_gpt(net), lr=0.05, momentum=0.5).param_groups


def own_head(net: nn.Module) -> list[dict[str, Any]]:
    head = [p for name, p in net.named_parameters() if name.startswith("score")]
    body = (p for name, p in net.named_parameters() if not name.startswith("score"))
    return [{"params": head, "lr": 0.5}, {"params": [], "lr": 9.0}, {"params": body}]


def rest(net: nn.Module) -> dict[str, nn.Parameter]:
    return {name: p for name, p in net.named_parameters() if not name.startswith("score")}


def flat(net: nn.Module) -> Any:
    return net.parameters()


PATTERNS = [configured, own_head, flat]


def sgd(groups: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(groups, lr=0.1, momentum=0.9, weight_decay=0.01)


def adam(groups: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(groups, lr=0.01, weight_decay=0.01)


@pytest.mark.parametrize(("stepping", "penalised"), [(sgd, None), (adam, lambda name, p: name.startswith("score"))])
@pytest.mark.parametrize("get_groups", PATTERNS)
def test_a_family_is_trained_as_plain_networks_by_hand(
    get_groups: Callable[..., Any], stepping: Callable[..., torch.optim.Optimizer], penalised: Any
) -> None:
    torch.manual_seed(0)
    options = {} if penalised is None else {"penalised": penalised}
    base = Net().frozen.state_dict()

    def make() -> nn.Module:
        net = Net()
        net.frozen.load_state_dict(base)
        return net

    family = ss.Subspace(make, ss.Simplex(3), seed=0, groups=get_groups, **options)
    vertices = [family.at(corner.tolist()) for corner in torch.eye(3)]

    optimizer, others = stepping(family.parameter_groups()), [stepping(get_groups(vertex)) for vertex in vertices]
    for _ in range(3):
        tokens, alpha = torch.randint(7, (2, 5)), family.sample()
        optimizer.zero_grad()
        family(tokens, alpha=alpha).backward()
        optimizer.step()
        middle = Net()  # c^T omega by hand, and c_i dl/dtheta for each of the plain networks
        with torch.no_grad():
            for p, *each in zip(middle.parameters(), *(v.parameters() for v in vertices), strict=True):
                p.copy_(sum(c * q for c, q in zip(alpha, each, strict=True)) if each[0].requires_grad else each[0])
        middle(tokens).backward()
        for c, vertex, stepper in zip(alpha, vertices, others, strict=True):
            for p, q in zip(middle.parameters(), vertex.parameters(), strict=True):
                if p.grad is not None and q.requires_grad:
                    q.grad = c * p.grad
            stepper.step()
    for index, vertex in enumerate(vertices):
        for name, value in family.vertex(index).items():
            assert_close(value, vertex.get_parameter(name).detach())


def test_groups_have_their_order_and_options_and_hold_all_once() -> None:
    family = ss.Subspace(Net(), ss.Line(), init="point", groups=own_head)
    head, empty, body = family.parameter_groups()
    assert (head["lr"], empty) == (0.5, {"params": [], "lr": 9.0})
    assert body.keys() == {"params"}
    assert sum(each.shape[1] for each in head["params"]) == 4 * 2 + 2
    found = [id(each) for group in (head, body) for each in group["params"]]
    assert sorted(found) == sorted(map(id, family.omega.values()))
    assert {name.partition("_")[0] for name in family.omega} == {"group0", "group2"}
    head["lr"] = 7
    assert family.parameter_groups(group1={"momentum": 0.1})[1] == {"params": [], "lr": 9.0, "momentum": 0.1}
    assert family.parameter_groups()[0]["lr"] == 0.5
    schedule = torch.optim.lr_scheduler.LambdaLR(
        torch.optim.SGD(family.parameter_groups(), lr=1.0), [lambda epoch, k=k: k for k in (1.0, 2.0, 3.0)]
    )
    assert schedule.get_last_lr() == [0.5, 18.0, 3.0]
    with pytest.raises(ValueError, match=r"parameter_groups\(group={'lr': 1}\): .* did you mean 'group"):
        family.parameter_groups(group={"lr": 1})
    with pytest.raises(ValueError, match="expected one of 'group0', 'group1', 'group2'"):
        family.parameter_groups(weights={"lr": 1})


elsewhere = nn.Linear(2, 2)
REFUSED = {
    "score.weight.*in no group.*requires_grad_": lambda net: list(rest(net).values()),
    "appear in more than one parameter group": lambda net: [
        {"params": net.parameters()},
        {"params": net.score.weight},
    ],
    r"shape \(2, 2\), which is no parameter": lambda net: [*net.parameters(), elsewhere.weight],
    r"groups= returned a int .*: expected what a torch": lambda net: 5,
    "groups= returned a Parameter": lambda net: net.score.weight,
    r"groups= returned a list \('params'\)": lambda net: [{"params": net.parameters()}, {"lr": 3}],
    "one of the params is str": lambda net: [{"params": dict(net.named_parameters()).keys()}],
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_cannot_be_the_groups_of_a_family(message: str) -> None:
    with pytest.raises(ss.UserError, match=message):
        ss.Subspace(Net(), ss.Line(), init="point", groups=REFUSED[message])
