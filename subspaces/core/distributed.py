"""One family on many devices, with the traffic of one network: mix first, gather after.

Every vertex's gradient is a multiple of one tensor, d loss / d omega_i = c_i d loss / d theta. So each rank mixes its
own columns of Omega [m, n/W], the mixed pieces are gathered to theta [n], and in the backward pass the gradient of
theta is averaged over the ranks and cut before it is spread over the vertices. A sharded Omega is a `DTensor`; with an
ordinary tensor the functions below return their argument.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from subspaces.core import checks
from subspaces.errors import ArgumentError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

Family = TypeVar("Family", bound=nn.Module)
Result = TypeVar("Result")
# As newer versions of torch call them.
_GATHER: Any = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_SCATTER: Any = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


@torch.no_grad()
def distribute(family: Family, mesh: "DeviceMesh | None" = None) -> Family:
    """Cut the vertices of a family along their weights over the devices of a mesh, in place; return the family.

    A step then moves one network's numbers however many vertices there are, and vertices, gradients and the optimiser's
    state take m n / W per rank. Training is that of one process with the batches of all ranks together. All ranks begin
    with the family of the first one, and make the same calls in the same order, as they gather; a network that `at` or
    `midpoint` returns is an ordinary one.

    Args:
        family: on the device of this rank, not wrapped, and not yet given to an optimiser.
        mesh: a `DeviceMesh` with one dimension, by default one over all ranks.

    Example:
        >>> dist.init_process_group()  # in each process of torchrun --nproc-per-node=8 train.py
        >>> family = ss.distribute(ss.Subspace(make_net, ss.Simplex(6)).to(device))
        >>> optimizer = torch.optim.SGD(family.parameters(), lr=0.1, momentum=0.9)
    """
    found: Any = family
    if not is_family(family) or found.mesh is not None:
        got = f"one that is sharded already, over {found.mesh}" if is_family(family) else f"a {type(family).__name__}"
        raise ArgumentError(f"distribute got {got}: expected a Subspace, before anything wraps it, once")
    mesh = _checked(mesh, found.device)
    from torch.distributed.tensor import Shard, distribute_tensor

    whole = dict(found.omega.items())
    pieces = {name: distribute_tensor(omega.detach(), mesh, [Shard(1)]) for name, omega in whole.items()}
    for tensor in (*found.template.parameters(), *found.buffers()):
        value = tensor.detach().contiguous()
        dist.broadcast(value, group=mesh.get_group(), group_src=0)
        tensor.detach().copy_(value)
    for name, omega in whole.items():
        found.omega[name] = nn.Parameter(pieces[name], requires_grad=omega.requires_grad)
        omega.grad, omega.data = None, omega.new_empty(0)  # whoever holds it: the memory is free
    return family


def _checked(mesh: Any, device: torch.device) -> "DeviceMesh":
    """Return the mesh, or one over all ranks."""
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(
            "distribute needs a process group: write torch.distributed.init_process_group() before it, and start a "
            "process per device with torchrun --nproc-per-node=8 train.py"
        )
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

    if mesh is None:
        return init_device_mesh(device.type, (dist.get_world_size(),))
    if not isinstance(mesh, DeviceMesh) or mesh.ndim != 1 or mesh.device_type != device.type:
        raise ArgumentError(
            f"distribute(mesh={checks.shown(mesh)}): expected a DeviceMesh with one dimension of {device.type} "
            "devices, where the family is (else move it first), such as mesh['data'], or None"
        )
    return mesh


def is_family(module: Any) -> bool:
    """Return whether a module is a `Subspace`, which is built on this file."""
    return isinstance(module, nn.Module) and isinstance(module._modules.get("omega"), nn.ParameterDict)


def unwrapped(module: nn.Module) -> nn.Module:
    """Return what `torch.compile`, `DistributedDataParallel` or `AveragedModel` has wrapped."""
    inner = getattr(module, "_orig_mod", getattr(module, "module", None))
    return unwrapped(inner) if isinstance(inner, nn.Module) else module


# The columns of this rank


def mesh_of(omega: Tensor | Iterable[Tensor]) -> "DeviceMesh | None":
    """Return the mesh that a matrix, or the first of several, is cut over; None for an ordinary tensor."""
    first: Any = omega if isinstance(omega, Tensor) else next(iter(omega))
    mesh: DeviceMesh | None = getattr(first, "device_mesh", None)  # to import DTensor takes a second
    if mesh is not None and not (mesh.ndim == 1 and first.placements[0].is_shard(1)):
        raise ArgumentError(
            f"the vertices are cut over devices as {first.placements}, as fully_shard does: expected a family that "
            "subspaces.distribute has cut, along its weights"
        )
    return mesh


def local(omega: Tensor) -> Tensor:
    """Return this rank's columns, connected for autograd: [m, n] -> [m, n/W]."""
    sharded: Any = omega
    return omega if mesh_of(omega) is None else sharded.to_local(grad_placements=sharded.placements)


def columns(coefficients: Tensor, omega: Tensor) -> Tensor:
    """Return the coefficients of this rank's columns, [m] or [m, n] -> [m, n/W]; their gradient is of all columns."""
    mesh = mesh_of(omega)
    if mesh is None:
        return coefficients
    if coefficients.requires_grad:
        coefficients = _summed(coefficients, mesh, True)
    return coefficients if coefficients.ndim == 1 else _own(coefficients, mesh)


def _own(whole: Tensor, mesh: "DeviceMesh") -> Tensor:
    """Cut a matrix as `torch.chunk` does: [m, n] -> [m, n/W]."""
    n = whole.shape[1]
    each = -(-n // mesh.size())
    start = min(mesh.get_local_rank() * each, n)
    return whole.narrow(1, start, min(each, n - start))


def cut(value: Tensor, like: Tensor) -> Tensor:
    """Return a matrix [m, n] that all ranks have, cut as another is; nothing is sent."""
    mesh = mesh_of(like)
    if mesh is None:
        return value
    from torch.distributed.tensor import DTensor, Shard

    piece = _own(value, mesh).to(like.device, like.dtype).contiguous()
    return DTensor.from_local(piece, mesh, [Shard(1)], run_check=False, shape=value.shape, stride=(value.shape[1], 1))


# What all ranks make together


def gathered(piece: Tensor, omega: Tensor) -> Tensor:
    """Return the row whose piece each rank has, [n/W] -> [n]; its gradient is averaged over the ranks and cut."""
    mesh = mesh_of(omega)
    return piece if mesh is None else _gather(piece, omega.shape[1], mesh)


def row(value: Tensor, vertex: int) -> Tensor:
    """Return one row of a matrix that may be cut over the ranks: [n], for which all of them have to ask."""
    return gathered(local(value).detach()[vertex], value)


def collected(value: Tensor, keep: bool) -> Tensor:
    """Return all columns of a matrix, for which all ranks have to ask, on the CPU of those that `keep` them."""
    if mesh_of(value) is None:
        return value
    rows = (row(value, index) for index in range(len(value)))  # one by one: no device ever holds all
    return torch.stack([each.cpu() if keep else each[:0] for each in rows])


def total(sums: Tensor, omega: Tensor) -> Tensor:
    """Return the sum over the ranks of those of their columns; each gets the gradient of its own part."""
    mesh = mesh_of(omega)
    return sums if mesh is None else _summed(sums, mesh, False)


class _Gathered(torch.autograd.Function):
    """Pieces [n/W] to a row [n]; in the backward pass one network's numbers are averaged and cut."""

    @staticmethod
    def forward(ctx: Any, piece: Tensor, n: int, mesh: "DeviceMesh") -> Tensor:
        ctx.mesh, ctx.length = mesh, len(piece)
        each = -(-n // mesh.size())
        row = piece.new_empty(each * mesh.size())
        _GATHER(row, _padded(piece, each), group=mesh.get_group())
        return row[:n]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        each = -(-len(gradients[0]) // ctx.mesh.size())
        mine = gradients[0].new_empty(each)
        _SCATTER(mine, _padded(gradients[0], each * ctx.mesh.size()), group=ctx.mesh.get_group())
        return mine[: ctx.length].div_(ctx.mesh.size()), None, None


class _Summed(torch.autograd.Function):
    """The sum over the ranks of a value, or else of its gradient; the other is each rank's own."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, mesh: "DeviceMesh", later: bool) -> Tensor:
        ctx.mesh, ctx.later = mesh, later
        return value.view_as(value) if later else _reduced(value, mesh)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        return _reduced(gradients[0], ctx.mesh) if ctx.later else gradients[0], None, None


_gather: Callable[..., Tensor] = _Gathered.apply
_summed: Callable[..., Tensor] = _Summed.apply


def _reduced(value: Tensor, mesh: "DeviceMesh") -> Tensor:
    found = value.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(found, group=mesh.get_group())
    return found


def _padded(value: Tensor, length: int) -> Tensor:
    return value.contiguous() if len(value) == length else F.pad(value, (0, length - len(value)))


def check_same(found: Mapping[str, Tensor], mesh: "DeviceMesh | None") -> None:
    """Refuse coefficients or counts that differ from rank to rank: theta would be patched from several points."""
    if mesh is None or torch.compiler.is_compiling():
        return
    if mesh.device_type == "cuda" and torch.cuda.is_current_stream_capturing():
        return  # nothing can be read now
    rows = [value.detach().double().flatten() for value in found.values()]
    mark = torch.stack([row @ torch.arange(1.0, len(row) + 1).to(row) for row in rows])  # a number for each
    extremes = torch.stack([mark, -mark])
    dist.all_reduce(extremes, dist.ReduceOp.MAX, group=mesh.get_group())
    if not torch.allclose(extremes[0], -extremes[1], rtol=1e-9):
        raise ArgumentError(
            "alpha, or how many random numbers were drawn, is not the same on all ranks, and a distributed family is "
            "at one point at a time: leave alpha out, or take family.sample(), on all ranks"
        )


def is_first(mesh: "DeviceMesh | None") -> bool:
    """Return whether this is the one process that writes."""
    return mesh is None or mesh.get_local_rank() == 0


def on_first(mesh: "DeviceMesh | None", function: Callable[[], Result]) -> Result:
    """Run a function on the first rank alone; all ranks return its result or raise its error."""
    if mesh is None:
        return function()
    outcome: list[Any] = [None, None]
    if is_first(mesh):
        try:
            outcome[0] = function()
        except Exception as error:
            outcome[1] = error
    dist.broadcast_object_list(outcome, group=mesh.get_group(), group_src=0)
    if outcome[1] is not None:
        raise outcome[1]
    return outcome[0]  # type: ignore[no-any-return]


@torch.no_grad()
def average_statistics(norms: Iterable[Any], mesh: "DeviceMesh | None", counting: bool) -> None:
    """Give batch norms the statistics of all ranks, each batch with the same weight; `counting`: and their number."""
    if mesh is None:
        return
    for norm in norms:
        both, count = (norm.running_mean, norm.running_var), norm.num_batches_tracked
        dtype = torch.promote_types(both[0].dtype, torch.float32)  # in float16 the products would be infinite
        weight = count.clamp_min(1).to(dtype)[None]
        sums = torch.cat([*(each.to(dtype) * weight for each in both), weight])
        dist.all_reduce(sums, group=mesh.get_group())
        for each, average in zip(both, (sums[:-1] / sums[-1]).chunk(2), strict=True):
            each.copy_(average)
        if counting:
            dist.all_reduce(count, group=mesh.get_group())
