"""Training in a plain PyG loop, as benchmarks of converted models share it."""

from __future__ import annotations

import copy

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch_geometric.data import Data

import bignn


def train(model: nn.Module, data: Data, epochs: int, *, every: int = 1) -> tuple[float, float]:
    """Train in a plain loop; return validation and test accuracy of the best epoch, its weights.

    Adam, learning rate 0.01, decay 5e-4. The model is evaluated every so many epochs, and after the
    last.
    """
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    best, state = (-1.0, 0.0), model.state_dict()
    for epoch in range(1, epochs + 1):
        model.train()
        optimizer.zero_grad()
        logits = model(data.x, data.edge_index)
        functional.cross_entropy(logits[data.train_mask], data.y[data.train_mask]).backward()
        optimizer.step()
        if epoch % every and epoch < epochs:
            continue
        scores = accuracies(model, data)
        if scores[0] > best[0]:  # the first such epoch: a tie is not broken by the test nodes
            best, state = scores, copy.deepcopy(model.state_dict())
    model.load_state_dict(state)
    return best


@torch.no_grad()
def accuracies(model: nn.Module, data: Data) -> tuple[float, float]:
    """Return the accuracies on validation and test nodes in percent."""
    right = (model.eval()(data.x, data.edge_index).argmax(dim=-1) == data.y).float()
    return 100 * float(right[data.val_mask].mean()), 100 * float(right[data.test_mask].mean())


@torch.no_grad()
def nodes_packed_alike(model: nn.Module, data: Data) -> int:
    """Count the nodes to which the packed model gives torch's class."""
    expected = model.eval()(data.x, data.edge_index).argmax(dim=-1).numpy()
    return int(np.sum(bignn.pack(model).predict(data) == expected))
