"""One family on many devices, with the traffic of one network.

Run the same program in a process per device, each with batches of its own (`torchrun --nproc-per-node=8 train.py`):

    dist.init_process_group()
    family = ss.distribute(ss.Subspace(make_net, ss.Simplex(6)).to(device))
    optimizer = torch.optim.SGD(family.parameters(), lr=0.1, momentum=0.9)
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from subspaces.core import checks
from subspaces.core.family import Subspace
from subspaces.core.functional import unwrapped
from subspaces.errors import ArgumentError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.nn.parallel import DistributedDataParallel


@torch.no_grad()
def distribute(family: Subspace, mesh: "DeviceMesh | None" = None) -> Subspace:
    """Cut the vertices of a family along their weights over the devices of a mesh, in place; return the family.

    A step then moves one network's numbers however many vertices there are: theta is gathered, and its gradient is
    averaged over the ranks. Vertices, gradients and the optimiser's state take m n / W per rank. Training is that of
    one process with the batches of all ranks together; all ranks begin with what the first one has.

    Call it on the device of the rank and before the optimiser is made, which else holds the old parameters. All ranks
    then make the same calls in the same order (`family(x)`, `penalty`, `at`, `save`, …), as they gather; a network that
    `at` or `midpoint` returns is an ordinary one. Without `statistics_every`, batch-norm statistics are each rank's own
    until `recalibrate`.

    Args:
        family: on the device of this rank; not wrapped.
        mesh: a `DeviceMesh` with one dimension, by default one over all ranks.
    """
    _check_family(family)
    mesh = _checked(mesh, family.device)
    from torch.distributed.tensor import Shard, distribute_tensor

    whole = dict(family.omega.items())
    pieces = {name: distribute_tensor(omega.detach(), mesh, [Shard(1)]) for name, omega in whole.items()}
    _broadcast([*family.template.parameters(), *family.buffers()], mesh)
    for name, omega in whole.items():
        family.omega[name] = nn.Parameter(pieces[name], requires_grad=omega.requires_grad)
        omega.grad, omega.data = None, omega.new_empty(0)  # whoever holds it: the memory is free
    return family


def reduce_theta(parallel: "DistributedDataParallel") -> "DistributedDataParallel":
    """Let a wrapped family average the gradient of theta over the ranks instead of those of all vertices.

    The gradients are those that `DistributedDataParallel` gives, for one network's traffic: d loss / d omega_i =
    c_i d loss / d theta is averaged before it is multiplied by c_i. `parallel` may also wrap a module that holds
    families; its other parameters are averaged as ever. With `samples=s` a step moves s networks' numbers; from s = m
    on it is better to do without.
    """
    from torch.distributed.device_mesh import DeviceMesh
    from torch.nn.parallel import DistributedDataParallel

    if not isinstance(parallel, DistributedDataParallel):
        raise ArgumentError(
            f"reduce_theta({checks.shown(parallel)}): expected DistributedDataParallel(family), "
            "made by torch.nn.parallel.DistributedDataParallel"
        )
    families = [part for part in parallel.modules() if isinstance(part, Subspace)]
    if not families:
        raise ArgumentError(
            f"reduce_theta got a wrapped {type(parallel.module).__name__}: expected one that holds a Subspace"
        )
    if any(family.averaging is not None for family in families):
        raise ArgumentError("reduce_theta was called before for this family: once is enough")
    ours = {id(omega) for family in families for omega in family.omega.values()}
    parallel.register_comm_hook(None, _averaging_others(ours, parallel.process_group))
    mesh = DeviceMesh.from_group(parallel.process_group, families[0].device.type)
    for family in families:
        family.averaging = mesh
    return parallel


def _averaging_others(ours: set[int], group: Any) -> Any:
    """Return a hook that averages the gradients of a bucket, unless they are all vertices' and have been."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    def hook(state: object, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:  # type: ignore[name-defined]
        if not all(id(parameter) in ours for parameter in bucket.parameters()):
            return allreduce_hook(group, bucket)
        done: torch.futures.Future[Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    return hook


def _check_family(family: Any) -> None:
    if not isinstance(family, Subspace):
        inner = unwrapped(family) if isinstance(family, nn.Module) else family
        if isinstance(inner, Subspace):
            raise ArgumentError(
                f"distribute got a family wrapped in {type(family).__name__}: distribute the family itself, before "
                "anything wraps it, and leave DistributedDataParallel out"
            )
        raise ArgumentError(f"distribute({checks.shown(family)}): expected a Subspace")
    if family.mesh is not None:
        raise ArgumentError(f"distribute got a family that is sharded already, over {family.mesh}: once is enough")
    if family.averaging is not None:
        raise ArgumentError(
            "distribute got a family that reduce_theta has prepared for DistributedDataParallel: use one"
        )


def _checked(mesh: Any, device: torch.device) -> "DeviceMesh":
    """Return the mesh, or one over all ranks."""
    if not dist.is_available() or not dist.is_initialized():
        raise RuntimeError(
            "distribute needs a process per device and a process group: write torch.distributed.init_process_group() "
            "before it, and start the program with torchrun --nproc-per-node=8 train.py"
        )
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

    if mesh is None:
        return init_device_mesh(device.type, (dist.get_world_size(),))
    if not isinstance(mesh, DeviceMesh):
        raise ArgumentError(f"distribute(mesh={checks.shown(mesh)}): expected a DeviceMesh with one dimension, or None")
    if mesh.ndim != 1:
        raise ArgumentError(
            f"distribute got a mesh of {mesh.ndim} dimensions, {tuple(mesh.shape)}: expected one dimension, such as "
            "mesh['data'] of a mesh with names"
        )
    if mesh.device_type != device.type:
        raise ArgumentError(
            f"the mesh is of {mesh.device_type} devices and the family is on {device}: move the family first, "
            f"family.to('{mesh.device_type}')"
        )
    return mesh


def _broadcast(tensors: Iterable[Tensor], mesh: "DeviceMesh") -> None:
    """Give all ranks the tensors of the first one."""
    for tensor in tensors:
        value = tensor.detach().contiguous()
        dist.broadcast(value, group=mesh.get_group(), group_src=0)
        tensor.detach().copy_(value)
