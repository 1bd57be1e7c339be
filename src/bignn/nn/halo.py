"""Layers on a part of a graph: what they read of other parts comes from a :class:`Halo`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from bignn.binarize import binarize_features
from bignn.nn.features import BinaryRows, SparseFeatures
from bignn.nn.linear import FeaturesLike, Linear
from bignn.nn.sparse import SparseMatrix


class Halo(Protocol):
    """What gives a layer the rows of other parts, and these their gradients back.

    Each method appends the halo's rows to those of the part.
    """

    def binary(self, rows: BinaryRows, key: object) -> BinaryRows:
        """Append signs and scales; ``key`` tells the layers apart."""

    def constant(self, rows: BinaryRows | SparseFeatures) -> BinaryRows | SparseFeatures:
        """Append features, which stay the same from call to call."""

    def floats(self, x: Tensor, key: object) -> Tensor:
        """Append rows of floats."""


@dataclass(frozen=True)
class PartMatrix(SparseMatrix):
    """A matrix of weights whose rows are a part's nodes, and whose columns those and the halo."""

    halo: Any = None


def with_halo(x: FeaturesLike, edges: object, linear: Linear, *, rounds: bool) -> FeaturesLike:
    """Append the halo's rows to a layer's input, where the edges are those of a part.

    Rows of binary layers are sent as the bits that the layer makes of them.

    Args:
        x: the layer's input.
        edges: the edges that it was called with.
        linear: its linear map.
        rounds: whether the layer rounds the weights of edges.

    """
    if not isinstance(edges, PartMatrix):
        return x
    halo: Halo = edges.halo
    if not isinstance(x, Tensor):
        return halo.constant(x)
    if not linear.binarization.features:
        return halo.floats(x, linear)
    rows = linear.binary_rows(x) if rounds else None
    if rows is None:
        linear.check_input(x)
        rows = BinaryRows(*binarize_features(x, linear.binarization.ste))
    return halo.binary(rows, linear)
