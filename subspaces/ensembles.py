"""Several networks that answer as one."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from subspaces import values

Average = Literal["probabilities", "logits"]


class Ensemble(nn.Module):
    """Average the outputs of several networks.

    With average="probabilities" (the default) the output is the mean of the members' class
    probabilities, y = 1/k sum_i softmax(f_i(x)); with "logits" it is the mean of their outputs as
    they are. Averages are taken in float32 at least. Each member keeps its own batch-norm statistics.

    Args:
        members: the networks; they become submodules, not copies.
        average: what is averaged and returned, "probabilities" or "logits".
        dim: the dimension of the classes in a member's output.
        select: takes the logits out of a member's output, for networks that return more than a
            tensor, for example `lambda output: output.logits`.

    Example:
        >>> pair = Ensemble([net_a, net_b])
        >>> probabilities = pair(images)
    """

    def __init__(
        self,
        members: Iterable[nn.Module],
        average: Average = "probabilities",
        *,
        dim: int = -1,
        select: Callable[[Any], Tensor] | None = None,
    ) -> None:
        super().__init__()
        found = values.several("members", members, "a list of networks")
        if not found:
            raise ValueError("an ensemble needs at least one member")
        self.members = nn.ModuleList(values.all_of("Ensemble", found, (nn.Module,), "a list of networks"))
        if not values.integer(dim):
            raise TypeError(f"dim={values.shown(dim)}: expected an integer, the dimension of the classes")
        if select is not None:
            values.function("select", select, "a function that takes the logits out of an output")
        if average not in ("probabilities", "logits"):
            raise ValueError(f"average={values.shown(average)}: expected 'probabilities' or 'logits'")
        self.average = average
        self.dim = dim
        self.select = select

    def outputs(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return the logits of every member, stacked: [k, batch, classes]."""
        outputs = [member(*args, **kwargs) for member in self.members]
        if self.select is not None:
            outputs = [self.select(output) for output in outputs]
        if not isinstance(outputs[0], Tensor):
            source = "the members return" if self.select is None else "select= returns"
            raise TypeError(
                f"{source} a {type(outputs[0]).__name__}: pass select=, a function that takes "
                "the logits out of an output, for example select=lambda output: output['logits']"
            )
        return torch.stack(outputs)

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        outputs = self.outputs(*args, **kwargs)
        if outputs.dtype in (torch.float16, torch.bfloat16):
            outputs = outputs.float()  # three digits are too few for an average
        if self.average == "probabilities":
            dim = self.dim + 1 if self.dim >= 0 else self.dim
            outputs = outputs.softmax(dim, dtype=outputs.dtype)
        return outputs.mean(0)

    def extra_repr(self) -> str:
        return f"average={self.average!r}"
