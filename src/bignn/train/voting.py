"""Training by votes: parts of a model's hidden neurons that each learn to predict by themselves.

Networks that were trained apart err at other nodes, and their mean is right more often than one
network of the same size. Here they are one network: the last layer reads the hidden neurons in
parts, each of which has a loss of its own, and deployed it reads all of them, whose product is the
sum of the parts. So an ensemble costs nothing once it is trained.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from bignn.errors import input_error
from bignn.nn import GNN, GCNConv, SAGEConv


def check_voters(model: nn.Module, num_voters: int) -> None:
    """Refuse voters for a model that has none."""
    if isinstance(model, GNN) and model.lin is None and len(model.norms) > 0:
        width = model.config["hidden_channels"]
        if width < num_voters:
            raise input_error("voters", f"at most the {width} hidden neurons", num_voters)
        if isinstance(model.layers[-1], GCNConv | SAGEConv):
            return
    fix = "voters are for bignn.nn.GCN and GraphSAGE with a hidden layer and without jk"
    raise input_error("voters", "1", f"{num_voters} for {_title(model)}", fix)


def _title(model: nn.Module) -> str:
    if not isinstance(model, GNN):
        return f"a {type(model).__name__}"
    jumps = "" if model.lin is None else " with jk='cat'"
    layers = "1 layer" if len(model.convs) == 1 else f"{len(model.convs)} layers"
    return f"a model of {layers} of '{model.config['conv']}'{jumps}"


class Voting(nn.Module):
    """A model that returns the votes of its hidden neurons' parts.

    Args:
        model: the model.
        num_voters: how many parts.

    Shapes: as the model's, but [num_voters, N, out_channels].

    """

    def __init__(self, model: Any, num_voters: int) -> None:
        super().__init__()
        self.model, self.num_voters = model, num_voters

    def forward(self, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Tensor:
        """Compute the votes."""
        votes: Tensor = self.model.votes(x, edge_index, edge_weight, num_voters=self.num_voters)
        return votes
