"""The models of the paper: one class, float or binary by its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from bignn.binarize import Binarization
from bignn.config import (
    Activation,
    BinarizeMode,
    ConvName,
    DropMode,
    JumpMode,
    ModelConfig,
    NormMode,
    SteRule,
)
from bignn.config.input_bits import AUTO, SIGN
from bignn.config.options import DEFAULT_EDGE_BITS
from bignn.errors import input_error
from bignn.nn.adjacency import EdgesLike, factored_adjacency, normalized_adjacency
from bignn.nn.batch_norm import BatchNorm
from bignn.nn.evaluation import evaluating
from bignn.nn.features import BinaryRows
from bignn.nn.gat_conv import GATConv
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.input_stage import InputStage, Moments
from bignn.nn.jumping import JumpingHead
from bignn.nn.linear import FeaturesLike
from bignn.nn.sage_conv import SAGEConv
from bignn.nn.sg_conv import SGConv
from bignn.nn.sparse import SparseMatrix
from bignn.runtime.input_bits import choose_input_bits
from bignn.runtime.input_stage import InputSpec

Conv = GCNConv | SAGEConv | GATConv | SGConv
_CONVS: dict[str, Callable[..., Conv]] = {
    "gcn": GCNConv,
    "mean-gcn": GCNConv,
    "sage": SAGEConv,
    "gat": GATConv,
    "sgc": SGConv,
}

#: Forms of a graph that a model accepts: one for all layers, or one matrix per layer, in order.
Graphs = EdgesLike | tuple[SparseMatrix, ...]


class GNN(nn.Module):
    r"""A graph neural network of any depth, float or binary as its arguments choose.

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
        K: steps of propagation of an ``"sgc"`` convolution.
        jk: jumping knowledge: ``"cat"`` makes all convolutions hidden ones and predicts from their
            outputs side by side (:class:`bignn.nn.JumpingHead`); None predicts from the last one.
        binarize_head: binarize that last map too.
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
        edge_bits: bits that neighbours' weights are rounded to, 2 to 8, so that packed models sum
            the same whole numbers (:mod:`bignn.nn.edge_rounding`); None for float weights. Ignored
            unless ``binarize="both"``, by ``"sgc"`` convolutions, and where sums are plain floats:
            in compiled models, in half precision, and with edge weights that are learned.
        input_bits: bits that binary features have in the first layer: ``"sign"``, one per feature;
            ``"learned:4"``, signs of four projections per feature that are trained with the weights
            (:class:`bignn.nn.learned_directions.LearnedDirections`); ``"rotate:4"``, signs of
            random rotations; ``"threshold:4"``, comparisons with four quantiles of each feature
            (:mod:`bignn.runtime.input_bits`). ``"auto"`` is decided by :meth:`fit_input`, which
            :func:`bignn.fit` calls: dense features with few columns get learned bits, and their
            rows are not normalised; the first layer is then made anew. A loop of your own calls it
            before it makes its optimiser; without it, and for a model whose state was loaded,
            ``"auto"`` is ``"sign"``. Ignored where features are float.

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
        heads: int = 1,
        out_heads: int = 1,
        K: int = 2,
        jk: JumpMode | None = None,
        binarize_head: bool = False,
        dropout: float = 0.0,
        input_dropout: float | None = None,
        attention_dropout: float = 0.0,
        drop: DropMode = "all",
        balance: bool = False,
        scale_gradient: bool = True,
        norm: NormMode = "none",
        activation: Activation = "relu",
        normalize_rows: bool = True,
        binarize: BinarizeMode = "none",
        ste: SteRule = "input",
        edge_bits: int | None = DEFAULT_EDGE_BITS,
        input_bits: str = AUTO,
    ) -> None:
        """Build the module; the description of the class lists its arguments."""
        super().__init__()
        conv = self.own_conv if conv is None else conv
        if type(self) is not GNN and conv != self.own_conv:
            own = f"'{self.own_conv}' in a {type(self).__name__}"
            raise input_error("conv", own, repr(conv), "take bignn.nn.GNN")
        out_channels = hidden_channels if out_channels is None else out_channels
        config = ModelConfig(
            in_channels,
            hidden_channels,
            num_layers,
            out_channels,
            conv=conv,
            heads=heads,
            out_heads=out_heads,
            K=K,
            jk=jk,
            binarize_head=binarize_head,
            dropout=dropout,
            input_dropout=input_dropout,
            attention_dropout=attention_dropout,
            drop=drop,
            balance=balance,
            scale_gradient=scale_gradient,
            norm=norm,
            activation=activation,
            normalize_rows=normalize_rows,
            binarize=binarize,
            ste=ste,
            edge_bits=edge_bits,
            input_bits=input_bits,
        )
        in_channels, hidden_channels = config.in_channels, config.hidden_channels
        num_layers, out_channels = config.num_layers, config.out_channels
        #: Arguments that build this model again; checkpoints carry them.
        self.config: dict[str, Any] = asdict(config)
        #: Names of the classes, of a model that was trained on a graph that has them.
        self.class_names: tuple[str, ...] | None = None
        self.binarization = Binarization.of(config.binarize, config.ste)
        self.input_stage = self._input_stage()
        jumps = config.jk is not None
        width = hidden_channels * config.heads
        num_hidden = num_layers if jumps else num_layers - 1
        self.convs = nn.ModuleList(
            _CONVS[conv](
                width if layer else self.input_stage.num_bits,
                hidden_channels if layer < num_hidden else out_channels,
                **_conv_options(config, is_first=layer == 0, is_hidden=layer < num_hidden),
            )
            for layer in range(num_layers)
        )
        self.norms = nn.ModuleList(
            BatchNorm(width) if config.norm == "batch" else nn.Identity() for _ in range(num_hidden)
        )
        # Named as in PyG, whose state_dict it loads.
        self.lin = _jumping_head(config, width) if jumps else None

    @property
    def num_hops(self) -> int | None:
        """Hops that a node's output depends on; None if it depends on every node of the batch."""
        if self.config["norm"] == "batch":
            return None
        return sum(conv.K if isinstance(conv, SGConv) else 1 for conv in self.layers)

    @property
    def layers(self) -> Sequence[Conv]:
        """The convolution layers, in order."""
        return [conv for conv in self.convs if isinstance(conv, Conv)]

    def adjacency(
        self, edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int
    ) -> SparseMatrix:
        """Build the matrix of weights by which this model's layers sum over neighbours.

        Layers that round weights need the factors of rows and columns apart.
        """
        conv = self.layers[0]
        if isinstance(conv, GCNConv | SAGEConv) and conv.edge_bits is not None:
            return factored_adjacency(edge_index, edge_weight, num_nodes, conv.aggr)
        return normalized_adjacency(edge_index, edge_weight, num_nodes, aggr=conv.aggr)

    def reset_parameters(self) -> None:
        """Draw new weights; the input statistics stay."""
        for conv in self.layers:
            conv.reset_parameters()
        if self.lin is not None:
            self.lin.reset_parameters()
        for norm in self.norms:
            if isinstance(norm, BatchNorm):
                norm.reset_parameters()

    def fit_input(
        self, x: Tensor, moments: Moments | None = None, input_bits: str | None = None
    ) -> None:
        """Take the input statistics from x; otherwise the first training batch does it.

        It also decides ``input_bits="auto"``, once.

        Args:
            x: the features.
            moments: computes the statistics where x is a part of the rows (``InputStage.fit``).
            input_bits: what ``"auto"`` is decided to be; by default what x says.

        """
        was_fitted = self.input_stage.has_statistics
        self.input_stage.fit(x, moments)
        if self.config["input_bits"] == AUTO and not was_fitted:
            chosen = input_bits or choose_input_bits(x.detach().float().cpu().numpy())
            self.config["input_bits"] = chosen
            if chosen != SIGN:
                self.config["normalize_rows"] = False
                self._make_first_layer()
                self.input_stage.fit(x, moments)

    def load_input_stage(self, spec: InputSpec) -> None:
        """Take the input stage of packed features; the first layer is made anew if bits differ."""
        if not self.binarization.features:
            raise input_error("model", "one with binary features, for a store", "float features")
        stage = self.input_stage
        if spec.num_features != stage.num_features:
            got = f"{spec.num_features}"
            raise input_error("store", f"one of {stage.num_features} features per node", got)
        is_other = (spec.input_bits, spec.normalize_rows) != (
            stage.input_bits,
            stage.normalize_rows,
        )
        differs = spec.num_columns != stage.num_bits
        self.config["normalize_rows"] = spec.normalize_rows
        self.config["input_bits"] = spec.input_bits
        if differs:
            self._make_first_layer()
        elif is_other:
            self.input_stage = self._input_stage().to(stage.mean.device)
        self.input_stage.load_spec(spec)

    def _input_stage(self) -> InputStage:
        config, features = self.config, self.binarization.features
        return InputStage(
            config["in_channels"],
            normalize_rows=config["normalize_rows"],
            standardize=features,
            binarize=features,
            input_bits=SIGN if config["input_bits"] == AUTO else config["input_bits"],
        )

    def _make_first_layer(self) -> None:
        """Make the input stage and the first layer anew, as ``config`` now has them."""
        config = ModelConfig(**self.config)
        before = self.layers[0]
        place = next(before.parameters())
        is_hidden = len(self.norms) > 0
        self.input_stage = self._input_stage().to(place.device)
        first = _CONVS[config.conv](
            self.input_stage.num_bits,
            config.hidden_channels if is_hidden else config.out_channels,
            **_conv_options(config, is_first=True, is_hidden=is_hidden),
        )
        self.convs[0] = first.to(device=place.device, dtype=place.dtype)
        self.input_stage.train(self.training)
        first.train(self.training)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        super()._load_from_state_dict(state_dict, prefix, *rest)
        if self.config["input_bits"] == AUTO:  # the loaded weights are those of signs
            self.config["input_bits"] = SIGN

    def forward(
        self,
        x: FeaturesLike,
        edge_index: Graphs,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Compute the logits; an x that is no tensor counts as :attr:`input_stage`'s output."""
        h: FeaturesLike = self.input_stage(x) if isinstance(x, Tensor) else x
        hidden: list[Tensor] = []
        for layer, conv in enumerate(self.convs):
            if hidden:
                h = hidden[-1] if self.lin is not None else hidden.pop()
            edges = edge_index[layer] if isinstance(edge_index, tuple) else edge_index
            norm = self.norms[layer] if layer < len(self.norms) else None
            if (bits := self._binary_rows(h, edges, edge_weight, layer)) is not None:
                h = bits
                continue
            if isinstance(norm, BatchNorm) and self._folds(conv, norm):
                hidden.append(conv(h, edges, edge_weight, norm=norm))
                continue
            h = conv(h, edges, edge_weight)
            if norm is not None:
                hidden.append(self._between(norm(h)))
        if self.lin is None:
            assert isinstance(h, Tensor)
            return h
        # Layers that make fewer rows than they read make the first ones.
        rows = len(hidden[-1])
        logits: Tensor = self.lin([some[:rows] for some in hidden])
        return logits

    def _binary_rows(
        self, h: FeaturesLike, edges: EdgesLike, edge_weight: Tensor | None, layer: int
    ) -> BinaryRows | None:
        """Compute a hidden layer for a next one that reads bits, in training that keeps bits."""
        conv = self.convs[layer]
        # The paper's printed gradient rule needs floats of the gradient.
        if layer >= len(self.norms) or self.lin is not None or self.binarization.ste != "input":
            return None
        between = self.norms[layer]
        norm = between if isinstance(between, BatchNorm) else None
        if not isinstance(conv, GCNConv) or not isinstance(self.convs[layer + 1], GCNConv):
            return None
        return conv.to_binary_rows(h, edges, edge_weight, norm=norm)

    def _folds(self, conv: nn.Module, norm: BatchNorm) -> bool:
        """Whether a layer takes the normalisation after it in, as its packed form does."""
        rounds = getattr(conv, "edge_bits", None) is not None
        return rounds and not norm.training and not norm.takes_statistics

    def _between(self, h: Tensor) -> Tensor:
        if self.binarization.features:
            return h
        return functional.elu(h) if self.config["activation"] == "elu" else functional.relu(h)

    @torch.no_grad()
    def predict(
        self,
        x: FeaturesLike,
        edge_index: Graphs,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """Predict the class of every node [N], in evaluation mode whatever the model's mode is."""
        with evaluating(self):
            out: Tensor = self(x, edge_index, edge_weight).argmax(dim=-1)
        return out


def _conv_options(config: ModelConfig, *, is_first: bool, is_hidden: bool) -> dict[str, Any]:
    """Choose the arguments of one layer's convolution."""
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
    if config.conv == "sgc":
        return options | {"K": config.K}
    options["edge_bits"] = config.edge_bits
    if config.conv == "gat":
        return options | {
            "heads": config.heads if is_hidden else config.out_heads,
            "concat": is_hidden,
            "attention_dropout": config.attention_dropout,
        }
    if config.conv == "sage":
        return options
    return options | {"aggr": "mean_self" if config.conv == "mean-gcn" else "gcn"}


def _jumping_head(config: ModelConfig, width: int) -> JumpingHead:
    return JumpingHead(
        width,
        config.num_layers,
        config.out_channels,
        binarize=config.binarize if config.binarize_head else "none",
        ste=config.ste,
        dropout=config.dropout,
        scale_gradient=config.scale_gradient,
    )


class GCN(GNN):
    """A :class:`GNN` with ``conv="gcn"``, called like ``torch_geometric.nn.GCN``."""

    own_conv = "gcn"

    @property
    def layers(self) -> Sequence[GCNConv]:
        """The convolution layers, in order."""
        return [conv for conv in self.convs if isinstance(conv, GCNConv)]


class GraphSAGE(GNN):
    """A :class:`GNN` with ``conv="sage"``, called like ``torch_geometric.nn.GraphSAGE``."""

    own_conv = "sage"


class GAT(GNN):
    """A :class:`GNN` with ``conv="gat"``; ``hidden_channels`` are per head, unlike in PyG."""

    own_conv = "gat"


#: Model classes by convolution; other convolutions are built by :class:`GNN` itself.
MODELS: dict[str, type[GNN]] = {kind.own_conv: kind for kind in (GCN, GraphSAGE, GAT)}
