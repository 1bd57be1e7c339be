"""PyG models to convert, and a small graph to train them on."""

from collections.abc import Callable
from typing import Any

import torch
import torch_geometric.nn as pyg
from conftest import make_arrays
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

D, CLASSES = 20, 2


class Own(nn.Module):
    """The common example: a functional ReLU and dropout."""

    def __init__(self, *, act: bool = True, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv1 = pyg.GCNConv(D, 16)
        self.conv2 = pyg.GCNConv(16, CLASSES)
        self.act, self.p = act, dropout

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        x = self.conv1(x, edge_index, edge_weight)
        x = x.relu() if self.act else x
        x = functional.dropout(x, p=self.p, training=self.training)
        out: Tensor = self.conv2(x, edge_index, edge_weight)
        return out


class Modules(nn.Module):
    """Module activations, a norm, a head, and a GIN layer."""

    def __init__(self) -> None:
        super().__init__()
        self.gin = pyg.GINConv(nn.Sequential(nn.Linear(D, 16), nn.ReLU(), nn.Linear(16, 16)))
        self.bn = nn.BatchNorm1d(16)
        self.relu = nn.ReLU(inplace=True)
        self.drop = nn.Dropout(0.25)
        self.conv = pyg.SAGEConv(16, 16)
        self.elu = nn.ELU()
        self.lin_out = nn.Linear(16, CLASSES)

    def forward(self, data: Data) -> Tensor:
        x, edge_index = data.x, data.edge_index
        x = self.drop(self.relu(self.bn(self.gin(x, edge_index))))
        x = self.elu(self.conv(x, edge_index))
        return functional.log_softmax(self.lin_out(x), dim=-1)


def family(**options: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    return {
        "gcn": pyg.GCN(D, 16, 3, CLASSES, **options),
        "sage": pyg.GraphSAGE(D, 16, 2, CLASSES, **options),
        "gat": pyg.GAT(D, 16, 2, CLASSES, heads=4, **options),
        "gin": pyg.GIN(D, 16, 2, CLASSES, train_eps=True, **options),
    }


NAMES = list(family())


def make_data() -> Data:
    """A graph of 120 nodes as PyG's ``Data``."""
    arrays = make_arrays(num_nodes=120, num_features=D)
    edges = torch.from_numpy(arrays["edge_index"])
    data = Data(torch.from_numpy(arrays["x"]), edges, y=torch.from_numpy(arrays["y"]))
    for name in ("train", "val", "test"):
        mask = torch.zeros(120, dtype=torch.bool)
        mask[torch.from_numpy(arrays[f"{name}_idx"])] = True
        data[f"{name}_mask"] = mask
    return data


def train(model: nn.Module, data: Data, call: Callable[[], Tensor], epochs: int = 60) -> float:
    """A plain loop; the accuracy on test nodes."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(epochs):
        model.train()
        optimizer.zero_grad()
        loss = functional.cross_entropy(call()[data.train_mask], data.y[data.train_mask])
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        correct = call().argmax(dim=-1) == data.y
    return float(correct[data.test_mask].float().mean())


class Between(nn.Module):
    """A function of h and of a second branch y, before a linear map."""

    def __init__(self, between: Callable[..., Tensor], last: Any = None) -> None:
        super().__init__()
        self.conv, self.side = pyg.GCNConv(D, 16), pyg.GCNConv(D, 16)
        self.head = nn.Linear(16, CLASSES)
        self.between, self.last = between, last

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h, y = self.conv(x, edge_index), self.side(x, edge_index)
        out: Tensor = self.head(self.between(h, y))
        return out if self.last is None else self.last(out)
