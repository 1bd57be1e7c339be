"""Halos in training: bits of neighbours forward, gradients back, in floats or in 8 bits.

Forward, a row is its signs and its scale β (ceil(K / 8) + 4 bytes). Backward, the gradient of a
halo row's signs goes to the row's owner, who adds it to those of other parts: 4 K bytes, or K + 4
in whole numbers of 8 bits, whose rounding is added to the next step's gradient (error feedback).
"""

from __future__ import annotations

from typing import Any, Literal, cast

import torch
from torch import Tensor

from bignn.binarize import sign
from bignn.nn.features import BinaryRows, SparseFeatures
from bignn.nn.tensor_cache import TensorCache
from bignn.runtime.parts.graph_part import GraphPart
from bignn.train.distributed import World
from bignn.train.parts.halo import HaloExchange

#: How gradients of the halo are sent: as float32, or as whole numbers of 8 bits with a scale.
GradientForm = Literal["float", "int8"]


class TrainingHalo:
    """A part's halo in training; see :class:`bignn.nn.halo.Halo`.

    Args:
        world: the processes.
        part: this process's part.
        device: where tensors are.
        gradients: how gradients are sent back.

    Attributes:
        exchange: what sends; counts bytes.

    """

    def __init__(
        self, world: World, part: GraphPart, device: torch.device, gradients: GradientForm
    ) -> None:
        self.exchange = HaloExchange(world, part)
        self.gradients = gradients
        self.num_halo = part.num_halo
        self._num_features = part.partition.num_features
        self.sent_rows = torch.from_numpy(part.sent.copy()).to(device)
        self._constant = TensorCache()
        #: What rounding has left of each layer's gradients, by layer.
        self._left: dict[int, Tensor] = {}

    def binary(self, rows: BinaryRows, key: object) -> BinaryRows:
        """Append the halo's signs and scales."""
        made = _HaloRows.apply(rows.signs, self, id(key), rows.beta)  # type: ignore[no-untyped-call]
        return BinaryRows(made, torch.cat([rows.beta, self._scales.to(rows.beta)]))

    def constant(self, rows: BinaryRows | SparseFeatures) -> BinaryRows | SparseFeatures:
        """Append the halo's features; they are exchanged once."""
        key = rows.beta if isinstance(rows, BinaryRows) else rows.matrix.matrix
        return self._constant.get(key, [], None, lambda: self._appended(rows))

    def floats(self, x: Tensor, key: object) -> Tensor:
        """Append the halo's rows of floats."""
        return cast(Tensor, _HaloRows.apply(x, self, id(key), None))  # type: ignore[no-untyped-call]

    def _appended(self, rows: BinaryRows | SparseFeatures) -> BinaryRows | SparseFeatures:
        if isinstance(rows, SparseFeatures):
            return SparseFeatures(self.floats(rows.matrix.matrix.to_dense(), rows))
        # Features that are encoded in several bits each would be sent as what they were.
        arrived = self.send(rows.signs, rows.beta, self._num_features)
        scales = torch.cat([rows.beta, self._scales.to(rows.beta)])
        whole = BinaryRows(torch.cat([rows.signs, arrived]), scales)
        # The usual sign of a column is that of all nodes of the graph.
        total = sum_over_processes(self.exchange.world, rows.signs.sum(dim=0, keepdim=True))
        whole.set_usual(sign(total))
        return whole

    def send(self, x: Tensor, beta: Tensor, columns: int) -> Tensor:
        """Send signs and scales; return the halo's signs, and keep its scales.

        As floats a row would have so many columns.
        """
        message = torch.cat([to_bits(x[self.sent_rows]), _as_bytes(beta[self.sent_rows])], dim=1)
        arrived = self.exchange.start_tensor(message, columns=columns).wait_tensor()
        self._scales = _as_floats(arrived[:, -4:])
        return from_bits(arrived[:, :-4], x.shape[1]).to(x.dtype)

    def send_back(self, gradient: Tensor, key: int) -> Tensor:
        """Send gradients of the halo's rows to their owners; return those of the rows sent."""
        if self.gradients == "float":
            return self.exchange.start_tensor(gradient.contiguous(), back=True).wait_tensor()
        left = self._left.get(key)
        wanted = gradient if left is None else gradient + left
        scale = wanted.abs().amax(dim=1, keepdim=True) / 127
        whole = (wanted / scale.clamp(min=torch.finfo(scale.dtype).tiny)).round_()
        self._left[key] = wanted - whole * scale
        message = torch.cat([whole.to(torch.int8).view(torch.uint8), _as_bytes(scale)], dim=1)
        columns = gradient.shape[1]
        arrived = self.exchange.start_tensor(message, back=True, columns=columns).wait_tensor()
        scales = _as_floats(arrived[:, -4:])
        return arrived[:, :-4].view(torch.int8).to(gradient.dtype) * scales


class _HaloRows(torch.autograd.Function):
    """Rows of a part with the halo's after them; gradients of these go back to their owners."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, halo: TrainingHalo, key: int, beta: Tensor | None) -> Tensor:
        ctx.halo, ctx.key = halo, key
        if beta is None:
            arrived = halo.exchange.start_tensor(x[halo.sent_rows].contiguous()).wait_tensor()
        else:
            arrived = halo.send(x, beta, x.shape[1])
        return torch.cat([x, arrived])

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        halo, gradient = ctx.halo, grads[0]
        count = len(gradient) - halo.num_halo
        arrived = halo.send_back(gradient[count:], ctx.key)
        own = gradient[:count].index_add(0, halo.sent_rows, arrived)
        return own, None, None, None


class _Sum(torch.autograd.Function):
    """A sum over processes; the gradient of each is the sum of their gradients."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, world: World) -> Tensor:
        ctx.world = world
        return _summed(x, world)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        return _summed(grads[0], ctx.world), None


def _summed(x: Tensor, world: World) -> Tensor:
    total = x.detach().clone().contiguous()
    if world.is_connected:
        with world.communicating():
            torch.distributed.all_reduce(total)
    return total


def sum_over_processes(world: World, x: Tensor) -> Tensor:
    """Add up a tensor over all processes, gradients too."""
    return cast(Tensor, _Sum.apply(x, world))  # type: ignore[no-untyped-call]


def largest_over_processes(world: World, x: Tensor) -> Tensor:
    """Take the largest of each number over all processes."""
    largest = x.detach().clone().contiguous()
    if world.is_connected:
        with world.communicating():
            torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
    return largest


def to_bits(signs: Tensor) -> Tensor:
    """Pack signs [rows, K] into bytes [rows, ceil(K / 8)], the first in the lowest bit."""
    rows, columns = signs.shape
    is_positive = torch.nn.functional.pad((signs >= 0).to(torch.uint8), (0, -columns % 8))
    places = torch.arange(8, dtype=torch.uint8, device=signs.device)
    return (is_positive.view(rows, -(-columns // 8), 8) << places).sum(dim=2, dtype=torch.uint8)


def from_bits(octets: Tensor, columns: int) -> Tensor:
    """Unpack bytes into signs ±1 [rows, K]."""
    places = torch.arange(8, dtype=torch.uint8, device=octets.device)
    flags = (octets.unsqueeze(2) >> places) & 1
    return flags.reshape(len(octets), 8 * octets.shape[1])[:, :columns].float() * 2 - 1


def _as_bytes(column: Tensor) -> Tensor:
    """View a column of numbers [rows, 1] as the bytes of float32 [rows, 4]."""
    return column.detach().float().contiguous().view(torch.uint8).view(-1, 4)


def _as_floats(octets: Tensor) -> Tensor:
    """Read a column of float32 [rows, 1] from its bytes [rows, 4]."""
    return octets.reshape(-1).clone().view(torch.float32).view(len(octets), 1)
