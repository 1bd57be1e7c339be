"""The width that a binary model needs: the Entropy Cover Hypothesis (Sec. 6.1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from numpy.typing import NDArray
from torch import nn

from bignn.capacity.binning import Correction, entropy, robust_entropy
from bignn.capacity.joint import copula_entropy, rate
from bignn.capacity.layers import visit_layers
from bignn.errors import InputError, input_error
from bignn.graph import GraphLike

#: Estimates of the bits of a layer, see :func:`estimate_bits`.
EstimateName = Literal["independent", "robust", "copula", "rate"]
#: The names of all estimates.
ESTIMATES: tuple[EstimateName, ...] = get_args(EstimateName)


def estimate_bits(
    values: NDArray[Any],
    estimate: EstimateName = "independent",
    bins: int = 200,
    *,
    correction: Correction = "none",
) -> float:
    """Estimate the bits of a layer, values [N, d].

    ``"independent"`` adds the neurons' binned entropies up, as the paper does; ``"robust"`` does so
    without outliers (:func:`robust_entropy`); ``"copula"`` takes away what they share
    (:func:`copula_entropy`); ``"rate"`` is the rate that describes them as finely as the bins
    (:func:`rate`; no correction applies to it).
    """
    if estimate not in ESTIMATES:
        raise input_error("estimate", f"one of {list(ESTIMATES)}", repr(estimate))
    ways: dict[EstimateName, Callable[[], float]] = {
        "independent": lambda: float(entropy(values, bins, correction=correction).sum()),
        "robust": lambda: float(robust_entropy(values, bins, correction=correction).sum()),
        "copula": lambda: copula_entropy(values, bins, correction=correction),
        "rate": lambda: rate(values, bins),
    }
    return ways[estimate]()


@dataclass(frozen=True)
class LayerEntropy:
    """The bits of one layer of a trained model.

    Attributes:
        name: ``"input"``, ``"hidden 1"``, ..., ``"output"``.
        width: neurons, d.
        samples: nodes, N.
        estimates: bits by the name of the estimate; ``"independent"`` is always there, and of the
            input nothing else is.

    """

    name: str
    width: int
    samples: int
    estimates: Mapping[EstimateName, float]

    @property
    def is_hidden(self) -> bool:
        """Whether the layer is neither input nor output."""
        return self.name.startswith("hidden")

    @property
    def bits(self) -> float:
        """The layer's entropy by the paper's estimate, which takes neurons for independent."""
        return self.estimates["independent"]


def layer_entropies(
    model: nn.Module,
    graph: GraphLike,
    bins: int = 200,
    *,
    estimates: Sequence[EstimateName] = ("independent",),
    correction: Correction = "none",
) -> list[LayerEntropy]:
    """Estimate the bits of the input, every hidden layer and the output of a trained model.

    Hidden layers are taken after normalisation and activation, on all nodes of the graph
    (:func:`bignn.capacity.layers.visit_layers`).

    Args:
        model: a :class:`bignn.nn.GNN`, or any module of PyG's or bignn's layers that is called as
            ``model(x, edge_index[, edge_weight])``.
        graph: a :class:`bignn.Graph` or a PyG ``Data``; labels are not needed.
        bins: M of :func:`bignn.capacity.binning.entropy`.
        estimates: which ones besides ``"independent"``, see :func:`estimate_bits`.
        correction: ``"none"`` or ``"miller-madow"``.

    """
    paper: tuple[EstimateName, ...] = ("independent",)
    names = tuple(dict.fromkeys(paper + tuple(estimates)))
    found: list[LayerEntropy] = []

    def visit(name: str, values: NDArray[Any]) -> None:
        chosen = paper if name == "input" else names
        try:
            bits = {
                estimate: estimate_bits(values, estimate, bins, correction=correction)
                for estimate in chosen
            }
        except InputError as error:
            raise InputError(f"the {name} layer of {type(model).__name__}: {error}") from error
        found.append(LayerEntropy(name, values.shape[1], len(values), bits))

    visit_layers(model, graph, visit)
    return found


def lower_bound(
    model: nn.Module,
    graph: GraphLike,
    bins: int = 200,
    *,
    estimate: EstimateName = "independent",
    correction: Correction = "none",
) -> int:
    """Compute the paper's bound on a binary layer's width: ``ceil(max_l H(h^(l)))``, l hidden.

    By the hypothesis a binary layer should be able to hold as many bits as the float layer does at
    the resolution of the bins. It is no law: narrower binary models have been seen to do as well,
    and wider ones to do better (docs/results.md). See :func:`layer_entropies` for the arguments.
    """
    layers = layer_entropies(model, graph, bins, estimates=(estimate,), correction=correction)
    return bound_of(layers, estimate)


def bound_of(layers: Sequence[LayerEntropy], estimate: EstimateName = "independent") -> int:
    """Compute :func:`lower_bound` from layers that were measured; at least 1."""
    bits = [layer.estimates[estimate] for layer in layers if layer.is_hidden]
    if not bits:
        raise InputError("the model has no hidden layer, so there is no width to bound")
    return max(1, math.ceil(max(bits)))


@dataclass(frozen=True)
class WidthAdvice:
    """The result of :func:`recommend_width`; ``int(advice)`` is the width.

    Attributes:
        width: hidden neurons for the binary model (heads times neurons where there are heads): the
            estimate, rounded up to whole words of 64 bits, since a part of one costs as much.
        estimate: the estimate that the width is based on.
        lower_bound: the paper's bound, by the independent estimate.
        bins: M.
        layers: the figures of every layer.

    """

    width: int
    estimate: EstimateName
    lower_bound: int
    bins: int
    layers: tuple[LayerEntropy, ...]

    def __index__(self) -> int:
        return self.width

    __int__ = __index__

    def __str__(self) -> str:
        lines = [f"width {self.width} ({self.estimate}), the paper's bound {self.lower_bound}"]
        for layer in self.layers:
            bits = ", ".join(f"{name} {bits:.1f}" for name, bits in layer.estimates.items())
            lines.append(f"  {layer.name:<10}{layer.width:>6} neurons   bits: {bits}")
        return "\n".join(lines)


def recommend_width(
    model: nn.Module,
    graph: GraphLike,
    bins: int = 200,
    *,
    estimate: EstimateName = "robust",
) -> WidthAdvice:
    """Recommend a width for the binary version of a trained float model, without a search.

    It evaluates the model once and rounds the bits of its largest hidden layer up to whole words of
    64. It is for *this* model: the paper's hypothesis is about a float model that is just
    wide enough, and a wider one holds more than it needs to (``bignn capacity`` finds the narrowest
    by training). The bits depend on M: each doubling adds up to a bit per neuron (docs/design.md).

    Args:
        model: a trained float model; see :func:`layer_entropies`.
        graph: a :class:`bignn.Graph` or a PyG ``Data``.
        bins: M; the paper takes 200 on PubMed and 1000 on its larger graphs.
        estimate: ``"robust"``, ``"independent"`` (the paper's), ``"copula"`` or ``"rate"``;
            docs/results.md compares each with measured widths (none is close everywhere).

    """
    if estimate not in ESTIMATES:
        raise input_error("estimate", f"one of {list(ESTIMATES)}", repr(estimate))
    if isinstance(bins, int) and bins < 2:
        raise input_error("bins", "at least 2", bins)
    if isinstance(model, nn.Module):
        for module in model.modules():
            binarization = getattr(module, "binarization", None)
            if getattr(binarization, "features", False):
                fix = "a binary layer has a bit per neuron; give the float model it was made from"
                raise input_error("model", "a trained float model", "one with binary features", fix)
    layers = layer_entropies(model, graph, bins, estimates=ESTIMATES)
    width = -(-bound_of(layers, estimate) // 64) * 64
    return WidthAdvice(width, estimate, bound_of(layers), bins, tuple(layers))
