"""Random compositions of what is supported: each trains a little, packs, and predicts as torch.

To have a module tried with all others, add it to one of the lists here.
"""

import copy
import random
import warnings
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

import bignn

NODES, D, WIDTH, CLASSES = 60, 11, 8, 3

#: Convolutions, by widths in and out and a number of heads that divides the width.
CONVOLUTIONS: list[Callable[[int, int, int], nn.Module]] = [
    lambda d, out, heads: pyg.GCNConv(d, out),
    lambda d, out, heads: pyg.SAGEConv(d, out),
    lambda d, out, heads: pyg.GATConv(d, out // heads, heads=heads),
    lambda d, out, heads: pyg.GATConv(d, out, heads=heads, concat=False),
    lambda d, out, heads: pyg.GINConv(pyg.MLP([d, WIDTH, out], norm=None), train_eps=True),
    lambda d, out, heads: pyg.GINConv(nn.Linear(d, out)),
    lambda d, out, heads: pyg.SGConv(d, out, K=2),
    lambda d, out, heads: pyg.GraphConv(d, out),
    lambda d, out, heads: pyg.GATv2Conv(d, out // heads, heads=heads),
    lambda d, out, heads: pyg.TransformerConv(d, out // heads, heads=heads),
    lambda d, out, heads: pyg.TAGConv(d, out, K=2),
    lambda d, out, heads: pyg.ChebConv(d, out, K=2),
]
#: Normalisation of hidden layers.
NORMS: list[Callable[[], nn.Module]] = [
    nn.Identity,
    lambda: pyg.BatchNorm(WIDTH),
    lambda: nn.LayerNorm(WIDTH),
    lambda: pyg.LayerNorm(WIDTH),
    lambda: pyg.GraphNorm(WIDTH),
    lambda: pyg.InstanceNorm(WIDTH),
    lambda: pyg.PairNorm(),
    lambda: pyg.MeanSubtractionNorm(),
    lambda: pyg.DiffGroupNorm(WIDTH, groups=2),
]
#: How a hidden layer's input h, result z and activation make the next input.
RESIDUALS: list[Callable[[Tensor, Tensor, Callable[[Tensor], Tensor], Tensor], Tensor]] = [
    lambda h, z, act, alpha: act(z),
    lambda h, z, act, alpha: h + act(z),
    lambda h, z, act, alpha: act(h + z),
    lambda h, z, act, alpha: alpha * h + (1 - alpha) * z,
    lambda h, z, act, alpha: torch.stack([h, act(z)]).mean(dim=0) - 0.1,
    lambda h, z, act, alpha: torch.maximum(h, z),
]
ACTIVATIONS: list[Callable[[Tensor], Tensor]] = [
    functional.relu,
    functional.elu,
    functional.leaky_relu,
    functional.gelu,
    functional.silu,
    torch.tanh,
]
CENTERS: list[Literal["auto"] | bool] = ["auto", True, False]
JUMPS = [None, "cat", "max", "lstm"]


class Composed(nn.Module):
    """A model drawn at random from the lists above."""

    def __init__(self, draw: random.Random) -> None:
        super().__init__()
        depth = draw.randint(2, 4)
        widths = [D, *[WIDTH] * (depth - 1)]
        layers = [draw.choice(CONVOLUTIONS)(d, WIDTH, draw.choice([1, 2, 4])) for d in widths]
        self.convs = nn.ModuleList(layers)
        self.norms = nn.ModuleList(draw.choice(NORMS)() for _ in layers)
        self.residuals = [draw.choice(RESIDUALS) for _ in layers]
        self.act, jump = draw.choice(ACTIVATIONS), draw.choice(JUMPS)
        self.jk = pyg.JumpingKnowledge(jump, WIDTH, depth) if jump else None
        self.alpha, self.p = nn.Parameter(torch.tensor(0.3)), draw.choice([0.0, 0.3])
        self.head = nn.Linear(WIDTH * depth if jump == "cat" else WIDTH, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        hidden = []
        for number, conv in enumerate(self.convs):
            z = self.norms[number](conv(x, edge_index))
            x = self.act(z) if number == 0 else self.residuals[number](x, z, self.act, self.alpha)
            x = functional.dropout(x, p=self.p, training=self.training)
            hidden.append(x)
        out: Tensor = self.head(hidden[-1] if self.jk is None else self.jk(hidden))
        return out


def make_data(seed: int) -> Data:
    """A random graph; its last nodes have no edges."""
    torch.manual_seed(seed)
    edges = torch.randint(0, NODES - 5, (2, 4 * NODES))
    return Data(torch.randn(NODES, D), edges, y=torch.randint(0, CLASSES, (NODES,)))


@pytest.mark.parametrize("seed", range(30))
def test_a_random_composition_packs(seed: int) -> None:
    draw, data = random.Random(seed), make_data(seed)
    original = Composed(draw)
    unchanged: Any = copy.deepcopy(original)
    bignn.binarize_(unchanged, binarize="none")
    with torch.no_grad():
        expected = original.eval()(data.x, data.edge_index)
        assert torch.allclose(unchanged.eval()(data.x, data.edge_index), expected, atol=1e-5)
    model = original.train()
    skip = [name for name in ("convs.0", "convs.1", "head") if draw.random() < 0.2]
    report = bignn.binarize_(model, center=draw.choice(CENTERS), skip=skip)
    assert any(entry.binary for entry in report.entries)
    assert report.obstacle is None
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".* have one sign at all|.* outputs are equal at")
        warnings.filterwarnings("ignore", ".* dense features by their signs")
        for _ in range(5):
            optimizer.zero_grad()
            functional.cross_entropy(model(data.x, data.edge_index), data.y).backward()
            optimizer.step()
    model.eval()
    with torch.no_grad():
        expected = model(data.x, data.edge_index)
    packed = bignn.pack(model)
    graph = bignn.pack_graph(data, like=packed)
    assert np.array_equal(packed.predict(graph), expected.argmax(dim=1))
    some = [0, NODES - 1, 7, 7]
    assert np.array_equal(packed.predict(graph, some), expected.argmax(dim=1)[some])
