"""Every model of the paper is this class with other arguments: baseline and binary are one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any, Unpack

import torch
from torch import Tensor, nn
from torch.nn import functional

from bignn.binarize import Binarization
from bignn.config import ConvName, ModelArguments, ModelConfig, ModelOptions
from bignn.errors import input_error
from bignn.nn.adjacency import Edges, normalized_adjacency
from bignn.nn.batch_norm import BatchNorm
from bignn.nn.evaluation import evaluating
from bignn.nn.gat_conv import GATConv
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.input_stage import InputStage
from bignn.nn.jumping import JumpingHead
from bignn.nn.linear import Features
from bignn.nn.sage_conv import SAGEConv
from bignn.nn.sg_conv import SGConv
from bignn.nn.sparse import SparseMatrix

Conv = GCNConv | SAGEConv | GATConv | SGConv
_CONVS: dict[str, Callable[..., Conv]] = {
    "gcn": GCNConv,
    "mean-gcn": GCNConv,
    "sage": SAGEConv,
    "gat": GATConv,
    "sgc": SGConv,
}

#: What a model takes as a graph: one for all layers, or one matrix per layer, first to last.
Graphs = Edges | tuple[SparseMatrix, ...]


class GNN(nn.Module):
    r"""A graph neural network of any depth, float or binary; which one is a matter of arguments.

    ``binarize="none"`` is the float model, ``"both"`` its binary version (``"features"`` and
    ``"weights"`` are the paper's ablations, Bi-GCN-F and Bi-GCN-W):

    ``x -> [rows, columns normalised] -> conv -> [norm] -> [activation] -> conv -> ... -> logits``

    Binary features have no activation: their sign is one. Models with binary features standardise
    the columns of their input (:class:`bignn.nn.InputStage`); the others do not, since it would
    cost them sparsity and, on the citation graphs, 4 to 23 points of accuracy (docs/trials.md).

    Args:
        in_channels: features per node.
        hidden_channels: width of the hidden layers; per head where there are heads.
        num_layers: number of convolutions, at least 1.
        out_channels: number of classes; None for ``hidden_channels``.
        conv: ``"gcn"`` (:class:`bignn.nn.GCNConv`), ``"mean-gcn"`` (the same with means, the
            paper's inductive GCN), ``"sage"`` (:class:`bignn.nn.SAGEConv`), ``"gat"``
            (:class:`bignn.nn.GATConv`) or ``"sgc"`` (:class:`bignn.nn.SGConv`); None is the
            class's own, for ``GNN`` itself ``"gcn"``.
        heads: attention heads of the hidden layers, side by side.
        out_heads: attention heads of the last layer, whose mean is taken.
        hops: steps of propagation of an ``"sgc"`` convolution.
        jump: ``"cat"`` makes all convolutions hidden ones and predicts from their outputs side by
            side (:class:`bignn.nn.JumpingHead`).
        binarize_head: whether that last map is binary too.
        dropout: probability of dropping an entry of a layer's input, after binarization.
        input_dropout: the same for the first layer; None for ``dropout``.
        attention_dropout: probability of dropping a neighbour's attention.
        drop: which entries of a binary input may be dropped: ``"all"``, or ``"present"``, those
            that are not what most nodes have (:func:`bignn.nn.binary_product.binary_product`).
        balance: columns of the first layer's binary weights have as many +1 as -1 throughout
            training (:class:`bignn.nn.Linear`).
        scale_gradient: gradients reach binary weights through their scales too, the first term of
            Eq. bp-W (:class:`bignn.nn.Linear`).
        norm: ``"batch"`` puts batch normalisation (no affine part) between layers: before the sign
            in binary nets, before the activation in float ones.
        activation: between layers of float features, ``"relu"`` or ``"elu"``.
        normalize_rows: scale each row of x to absolute sum 1 first.
        binarize: what is 1-bit.
        ste: gradient rule for features, see :func:`bignn.binarize.binarize_features`.

    Shapes: x [N, in_channels], edge_index [2, E] (or a sparse CSR adjacency with targets as rows),
    edge_weight [E] -> logits [N, out_channels].

    """

    own_conv: ConvName = "gcn"

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        *,
        conv: ConvName | None = None,
        **options: Unpack[ModelArguments],
    ) -> None:
        super().__init__()
        conv = self.own_conv if conv is None else conv
        if type(self) is not GNN and conv != self.own_conv:
            own = f"'{self.own_conv}' in a {type(self).__name__}"
            raise input_error("conv", own, repr(conv), "take bignn.nn.GNN")
        out_channels = hidden_channels if out_channels is None else out_channels
        config = ModelConfig(
            in_channels, hidden_channels, num_layers, out_channels, conv=conv, **options
        )
        #: The arguments that build this model again; checkpoints carry them.
        self.config: dict[str, Any] = asdict(config)
        self.binarization = Binarization.of(config.binarize, config.ste)
        self.input_stage = InputStage(
            in_channels,
            normalize_rows=config.normalize_rows,
            standardize=self.binarization.features,
            binarize=self.binarization.features,
        )
        jumps = config.jump == "cat"
        width = hidden_channels * config.heads
        num_hidden = num_layers if jumps else num_layers - 1
        self.convs = nn.ModuleList(
            _CONVS[conv](
                width if layer else in_channels,
                hidden_channels if layer < num_hidden else out_channels,
                **_conv_options(config, is_first=layer == 0, is_hidden=layer < num_hidden),
            )
            for layer in range(num_layers)
        )
        self.norms = nn.ModuleList(
            BatchNorm(width) if config.norm == "batch" else nn.Identity() for _ in range(num_hidden)
        )
        self.head = _head(config, width) if jumps else None

    @property
    def num_hops(self) -> int | None:
        """How far a node's output looks; None if it depends on every node of the batch."""
        if self.config["norm"] == "batch":
            return None
        return sum(conv.hops if isinstance(conv, SGConv) else 1 for conv in self.layers)

    @property
    def layers(self) -> Sequence[Conv]:
        """The convolutions, as what they are."""
        return [conv for conv in self.convs if isinstance(conv, Conv)]

    def adjacency(
        self, edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int
    ) -> SparseMatrix:
        """The matrix of weights by which this model's layers sum over neighbours."""
        return normalized_adjacency(edge_index, edge_weight, num_nodes, norm=self.layers[0].norm)

    def reset_parameters(self) -> None:
        """Draws new weights; the input statistics stay."""
        for conv in self.layers:
            conv.reset_parameters()
        if self.head is not None:
            self.head.reset_parameters()
        for norm in self.norms:
            if isinstance(norm, BatchNorm):
                norm.reset_parameters()

    def fit_input(self, x: Tensor) -> None:
        """Takes the input statistics from x; done by the first training batch otherwise."""
        self.input_stage.fit(x)

    def forward(
        self,
        x: Features,
        edge_index: Graphs,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """See the class. An x that is not a tensor is one that :attr:`input_stage` has made."""
        h: Features = self.input_stage(x) if isinstance(x, Tensor) else x
        hidden: list[Tensor] = []
        for layer, conv in enumerate(self.convs):
            if hidden:
                h = hidden[-1]
            edges = edge_index[layer] if isinstance(edge_index, tuple) else edge_index
            h = conv(h, edges, edge_weight)
            if layer < len(self.norms):
                hidden.append(self._between(self.norms[layer](h)))
        if self.head is None:
            assert isinstance(h, Tensor)
            return h
        # Layers that make fewer rows than they read make the first ones.
        rows = len(hidden[-1])
        logits: Tensor = self.head([some[:rows] for some in hidden])
        return logits

    def _between(self, h: Tensor) -> Tensor:
        if self.binarization.features:
            return h
        return functional.elu(h) if self.config["activation"] == "elu" else functional.relu(h)

    @torch.no_grad()
    def predict(
        self,
        x: Features,
        edge_index: Graphs,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """The class of every node [N], in evaluation mode whatever the model's mode is."""
        with evaluating(self):
            out: Tensor = self(x, edge_index, edge_weight).argmax(dim=-1)
        return out


def _conv_options(config: ModelConfig, *, is_first: bool, is_hidden: bool) -> dict[str, Any]:
    """What a layer's convolution is told."""
    options: dict[str, Any] = {
        # Batch normalisation takes a bias out again. Its gradient would be rounding noise, which
        # Adam makes steps of full size from.
        "bias": config.norm == "none" or not is_hidden,
        "binarize": config.binarize,
        "ste": config.ste,
        "dropout": config.input_dropout if is_first else config.dropout,
        "drop": config.drop if is_first else "all",
        "balance": config.balance and is_first,
        "scale_gradient": config.scale_gradient,
    }
    if config.conv == "gat":
        return options | {
            "heads": config.heads if is_hidden else config.out_heads,
            "concat": is_hidden,
            "attention_dropout": config.attention_dropout,
        }
    if config.conv == "sgc":
        return options | {"hops": config.hops}
    if config.conv == "sage":
        return options
    return options | {"norm": "mean_self" if config.conv == "mean-gcn" else "gcn"}


def _head(config: ModelConfig, width: int) -> JumpingHead:
    return JumpingHead(
        width,
        config.num_layers,
        config.out_channels,
        binarize=config.binarize if config.binarize_head else "none",
        ste=config.ste,
        dropout=config.dropout,
        scale_gradient=config.scale_gradient,
    )


def _show_options() -> None:
    """Lets ``help`` and notebooks list the options with their defaults, as if spelled out."""
    shown = inspect.signature(GNN.__init__)
    named = [p for p in shown.parameters.values() if p.kind is not p.VAR_KEYWORD]
    options = [
        inspect.Parameter(
            option.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=option.default,
            annotation=option.type,
        )
        for option in fields(ModelOptions)
        if option.name != "conv"
    ]
    vars(GNN)["__init__"].__signature__ = shown.replace(parameters=[*named, *options])


_show_options()


class GCN(GNN):
    """:class:`GNN` with ``conv="gcn"``; called as ``torch_geometric.nn.GCN``."""

    own_conv = "gcn"

    @property
    def layers(self) -> Sequence[GCNConv]:
        """The convolutions, as what they are."""
        return [conv for conv in self.convs if isinstance(conv, GCNConv)]


class GraphSAGE(GNN):
    """:class:`GNN` with ``conv="sage"``; called as ``torch_geometric.nn.GraphSAGE``."""

    own_conv = "sage"


class GAT(GNN):
    """:class:`GNN` with ``conv="gat"``; ``hidden_channels`` are per head."""

    own_conv = "gat"


#: Classes by convolution; those of no class of their own are plain :class:`GNN`.
MODELS: dict[str, type[GNN]] = {kind.own_conv: kind for kind in (GCN, GraphSAGE, GAT)}
