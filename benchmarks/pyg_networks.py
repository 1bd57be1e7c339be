"""Node classifiers around one convolution, norm or model of PyG, for PyG's table.

Features of edges and types of edges and nodes, which the graphs lack, are made of degrees.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, fx, nn
from torch.nn import functional
from torch_geometric.data import Data
from torch_geometric.nn import GCNConv
from torch_geometric.utils import degree

Make = Callable[[int, int], nn.Module]


def degree_counts(data: Data) -> Tensor:
    """Count the nodes of each degree, as PNA asks for them."""
    return torch.bincount(degree(data.edge_index[1], data.num_nodes, dtype=torch.long))


def made_of_degrees(name: str, x: Tensor, edge_index: Tensor) -> Tensor:
    """Make what a graph lacks, by its name in PyG.

    ``edge_attr`` is ``1 / sqrt(degree)`` of both ends of an edge, as in MoNet; ``edge_type`` is 1
    for edges to a node of more neighbours; ``node_type`` is 1 for nodes of more neighbours than the
    mean.
    """
    degrees: Tensor = degree(edge_index[1], len(x))
    if name == "edge_attr":
        return degrees.clamp(min=1)[edge_index].rsqrt().t()
    if name == "edge_type":
        return (degrees[edge_index[0]] < degrees[edge_index[1]]).long()
    return (degrees > degrees.mean()).long()


def one_graph(x: Tensor) -> Tensor:
    """Return the graph of every node: all are of one."""
    return torch.zeros(len(x), dtype=torch.long, device=x.device)


# Neither is followed into where a model's forward is traced.
fx.wrap("made_of_degrees")
fx.wrap("one_graph")


def with_types(data: Data) -> Data:
    """Copy a graph with the types of its edges, as a packed model would be given them."""
    typed = data.clone()
    typed.edge_type = made_of_degrees("edge_type", data.x, data.edge_index)
    return typed


def _num_classes(data: Data) -> int:
    return int(data.y.max()) + 1


class ConvNet(nn.Module):
    """Two convolutions with ReLU and dropout between, and linear maps where they need them.

    Args:
        make: makes a convolution, given the widths of its input and output.
        data: the graph.
        hidden_channels: width between the convolutions.
        first: columns that a linear map makes of the features before; 0 for none.
        linear_each: whether a linear map stands before each convolution, which has no widths.
        extras: what the convolutions are given besides nodes and edges, by PyG's names.

    """

    def __init__(
        self,
        make: Make,
        data: Data,
        hidden_channels: int,
        *,
        first: int = 0,
        linear_each: bool = False,
        extras: Sequence[str] = (),
    ) -> None:
        super().__init__()
        inputs, outputs = data.num_node_features, _num_classes(data)
        self.lin_first: nn.Module | None = None
        self.lin_between: nn.Module | None = None
        self.lin_last: nn.Module | None = None
        if first or linear_each:
            self.lin_first = nn.Linear(inputs, first or hidden_channels)
            inputs = first or hidden_channels
        self.is_first_active = bool(first)
        self.extras = tuple(extras)
        self.conv1 = make(inputs, first or hidden_channels)
        self.reads_first = "x_0" in inspect.signature(self.conv1.forward).parameters
        width = self._width_after(self.conv1, inputs)
        if linear_each:
            self.lin_between = nn.Linear(width, outputs)
            width = outputs
        self.conv2 = make(width, outputs)
        width = self._width_after(self.conv2, width)
        if width != outputs:
            self.lin_last = nn.Linear(width, outputs)

    @torch.no_grad()
    def _width_after(self, conv: nn.Module, inputs: int) -> int:
        """Measure how wide the output of a convolution is, on three nodes."""
        kept = torch.get_rng_state()
        x, edges = torch.rand(3, inputs), torch.tensor([[0, 1, 2, 2], [1, 2, 0, 1]])
        conv.eval()
        width = self._convolve(conv, x, x, edges).shape[-1]
        conv.train()
        torch.set_rng_state(kept)
        return int(width)

    def _convolve(
        self,
        conv: nn.Module,
        x: Tensor,
        x_0: Tensor,
        edge_index: Tensor,
        edge_type: Tensor | None = None,
    ) -> Tensor:
        given = {"edge_type": edge_type} if edge_type is not None else {}
        for name in self.extras:
            if name not in given:
                given[name] = made_of_degrees(name, x_0, edge_index)
        nodes = (x, x_0) if self.reads_first else (x,)
        out: Tensor = conv(*nodes, edge_index, **given)
        return out

    def forward(self, x: Tensor, edge_index: Tensor, edge_type: Tensor | None = None) -> Tensor:
        """Logits."""
        if self.lin_first is not None:
            x = self.lin_first(x)
            if self.is_first_active:
                x = functional.dropout(x.relu(), 0.5, self.training)
        if "edge_type" not in self.extras:
            edge_type = None
        h = self._convolve(self.conv1, x, x, edge_index, edge_type).relu()
        h = functional.dropout(h, 0.5, self.training)
        if self.lin_between is not None:
            h = self.lin_between(h)
        h = self._convolve(self.conv2, h, x, edge_index, edge_type)
        return h if self.lin_last is None else self.lin_last(h.relu())


class DNANet(nn.Module):
    """Two of DNA's convolutions, each of which reads the values of all layers before it."""

    def __init__(self, make: Make, data: Data, hidden_channels: int) -> None:
        super().__init__()
        self.lin1 = nn.Linear(data.num_node_features, hidden_channels)
        self.conv1 = make(hidden_channels, hidden_channels)
        self.conv2 = make(hidden_channels, hidden_channels)
        self.lin2 = nn.Linear(hidden_channels, _num_classes(data))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        layers = functional.dropout(self.lin1(x).relu(), 0.5, self.training).unsqueeze(1)
        for conv in (self.conv1, self.conv2):
            h = conv(layers, edge_index).relu()
            layers = torch.cat([layers, h.unsqueeze(1)], dim=1)
        out: Tensor = self.lin2(functional.dropout(h, 0.5, self.training))
        return out


class NormNet(nn.Module):
    """GCN, a norm, ReLU, dropout, GCN."""

    def __init__(self, norm: nn.Module, data: Data, hidden_channels: int) -> None:
        super().__init__()
        self.conv1 = GCNConv(data.num_node_features, hidden_channels)
        self.norm = norm
        self.conv2 = GCNConv(hidden_channels, _num_classes(data))
        reads = inspect.signature(norm.forward).parameters
        self.reads_types, self.reads_message = "type_vec" in reads, "msg" in reads
        self.lin = (
            nn.Linear(data.num_node_features, hidden_channels) if self.reads_message else None
        )

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        h = self.conv1(x, edge_index)
        if self.lin is not None:
            own = self.lin(x)
            h = own + self.norm(own, h)
        elif self.reads_types:
            h = self.norm(h, made_of_degrees("node_type", x, edge_index))
        else:
            h = self.norm(h)
        out: Tensor = self.conv2(functional.dropout(h.relu(), 0.5, self.training), edge_index)
        return out


class StackNet(nn.Module):
    """Two layers of equal width between two linear maps."""

    def __init__(self, make: Callable[[], nn.Module], data: Data, width: int) -> None:
        super().__init__()
        self.lin1 = nn.Linear(data.num_node_features, width)
        self.layer1, self.layer2 = make(), make()
        self.lin2 = nn.Linear(width, _num_classes(data))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        h = functional.dropout(self.lin1(x).relu(), 0.5, self.training)
        h = self.layer2(self.layer1(h, edge_index), edge_index)
        out: Tensor = self.lin2(h)
        return out


class LinearFirst(nn.Module):
    """A linear map that makes features narrow, and a model of them."""

    def __init__(self, in_channels: int, width: int, model: nn.Module) -> None:
        super().__init__()
        self.lin, self.model = nn.Linear(in_channels, width), model

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        h = functional.dropout(self.lin(x).relu(), 0.5, self.training)
        out: Tensor = self.model(h, edge_index)
        return out


class Batched(nn.Module):
    """A model that needs the graphs of nodes, or reads no edges."""

    def __init__(self, model: nn.Module, *, needs_edges: bool) -> None:
        super().__init__()
        self.model, self.needs_edges = model, needs_edges

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Logits."""
        arguments = (x, edge_index, one_graph(x)) if self.needs_edges else (x,)
        out: Tensor = self.model(*arguments)
        return out
