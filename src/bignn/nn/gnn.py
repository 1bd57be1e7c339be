"""Every model of the paper is this class with other arguments: baseline and binary are one."""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from bignn.binarize import Binarization, BinarizeMode, SteRule
from bignn.errors import wrong
from bignn.nn.batch_norm import BatchNorm
from bignn.nn.binary_product import DropMode
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.input_norm import InputNorm
from bignn.nn.sparse import SparseMatrix

NormMode = Literal["none", "batch"]


class GCN(nn.Module):
    r"""A graph convolutional network of any depth, float or binary.

    ``binarize="none"`` is GCN, ``"features"`` Bi-GCN-F, ``"weights"`` Bi-GCN-W, ``"both"`` Bi-GCN:

    ``x -> [rows, columns normalised] -> conv -> [norm] -> [ReLU] -> conv -> ... -> logits``

    Binary features have no ReLU: their sign is the activation. Models with binary features
    standardise the columns of their input (:class:`bignn.nn.InputNorm`); the others do not, since
    it would cost them sparsity and, on the citation graphs, 4 to 23 points of accuracy
    (docs/results.md).

    Args:
        in_channels: features per node.
        hidden_channels: width of the hidden layers.
        num_layers: number of convolutions, at least 1.
        out_channels: number of classes; None for ``hidden_channels``.
        dropout: probability of dropping an entry of a layer's input, after binarization.
        input_dropout: the same for the first layer; None for ``dropout``.
        drop: which entries of a binary input may be dropped: ``"all"``, or ``"present"``, those
            that are not what most nodes have (:func:`bignn.nn.binary_product.binary_product`).
        balance: columns of the first layer's binary weights have as many +1 as -1 throughout
            training (:class:`bignn.nn.Linear`).
        norm: ``"batch"`` puts batch normalisation (no affine part) between layers: before the sign
            in binary nets, before the ReLU in float ones.
        normalize_rows: scale each row of x to absolute sum 1 first.
        binarize: what is 1-bit.
        ste: gradient rule for features, see :func:`bignn.binarize.binarize_features`.

    Shapes: x [N, in_channels], edge_index [2, E] (or a sparse CSR adjacency with targets as rows),
    edge_weight [E] -> logits [N, out_channels].

    """

    def __init__(
        self,
        in_channels: int,
        hidden_channels: int,
        num_layers: int,
        out_channels: int | None = None,
        *,
        dropout: float = 0.4,
        input_dropout: float | None = None,
        drop: DropMode = "all",
        balance: bool = False,
        norm: NormMode = "none",
        normalize_rows: bool = True,
        binarize: BinarizeMode = "none",
        ste: SteRule = "input",
    ) -> None:
        super().__init__()
        for name, size in (("hidden_channels", hidden_channels), ("num_layers", num_layers)):
            if size < 1:
                raise wrong(name, "at least 1", size)
        if norm not in ("none", "batch"):
            raise wrong("norm", "'none' or 'batch'", repr(norm))
        out_channels = hidden_channels if out_channels is None else out_channels
        input_dropout = dropout if input_dropout is None else input_dropout
        for name, p in (("dropout", dropout), ("input_dropout", input_dropout)):
            if not 0 <= p < 1:
                raise wrong(name, "in [0, 1)", p)
        #: The arguments that build this model again; checkpoints carry them.
        self.config: dict[str, Any] = {
            "in_channels": in_channels,
            "hidden_channels": hidden_channels,
            "num_layers": num_layers,
            "out_channels": out_channels,
            "dropout": dropout,
            "input_dropout": input_dropout,
            "drop": drop,
            "balance": balance,
            "norm": norm,
            "normalize_rows": normalize_rows,
            "binarize": binarize,
            "ste": ste,
        }
        self.binarization = Binarization.of(binarize, ste)
        self.input_norm = InputNorm(
            in_channels,
            normalize_rows=normalize_rows,
            standardize=self.binarization.features,
            binarize=self.binarization.features,
        )
        sizes = [in_channels, *[hidden_channels] * (num_layers - 1), out_channels]
        self.convs = nn.ModuleList(
            GCNConv(
                sizes[layer],
                sizes[layer + 1],
                # Batch normalisation takes a bias out again. Its gradient would be rounding noise,
                # which Adam makes steps of full size from.
                bias=norm == "none" or layer == num_layers - 1,
                binarize=binarize,
                ste=ste,
                dropout=input_dropout if layer == 0 else dropout,
                drop=drop if layer == 0 else "all",
                balance=balance and layer == 0,
            )
            for layer in range(num_layers)
        )
        self.norms = nn.ModuleList(
            BatchNorm(size) if norm == "batch" else nn.Identity() for size in sizes[1:-1]
        )

    @property
    def num_hops(self) -> int | None:
        """How far a node's output looks; None if it depends on every node of the batch."""
        return None if self.config["norm"] == "batch" else len(self.convs)

    @property
    def layers(self) -> list[GCNConv]:
        """The convolutions, as what they are."""
        return [conv for conv in self.convs if isinstance(conv, GCNConv)]

    def reset_parameters(self) -> None:
        """Draws new weights; the input statistics stay."""
        for conv in self.layers:
            conv.reset_parameters()
        for norm in self.norms:
            if isinstance(norm, BatchNorm):
                norm.reset_parameters()

    def fit_input(self, x: Tensor) -> None:
        """Takes the input statistics from x; done by the first training batch otherwise."""
        self.input_norm.fit(x)

    def forward(
        self,
        x: Tensor,
        edge_index: Tensor | SparseMatrix,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """See the class."""
        h = self.input_norm(x)
        for layer, conv in enumerate(self.convs):
            if layer > 0:
                h = self.norms[layer - 1](h)
                if not self.binarization.features:
                    h = functional.relu(h)
            h = conv(h, edge_index, edge_weight)
        out: Tensor = h
        return out

    @torch.no_grad()
    def predict(
        self,
        x: Tensor,
        edge_index: Tensor | SparseMatrix,
        edge_weight: Tensor | None = None,
    ) -> Tensor:
        """The class of every node [N], in evaluation mode whatever the model's mode is."""
        was_training = self.training
        self.eval()
        try:
            out: Tensor = self(x, edge_index, edge_weight).argmax(dim=-1)
        finally:
            self.train(was_training)
        return out
