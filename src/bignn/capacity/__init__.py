"""How much hidden layers hold, and how wide binary ones must be for it (Sec. 6)."""

from bignn.capacity.binning import (
    Correction,
    Estimate,
    Interval,
    bootstrap,
    dependence,
    entropy,
    robust_entropy,
)
from bignn.capacity.joint import copula_entropy, rate
from bignn.capacity.layers import visit_layers
from bignn.capacity.width import (
    ESTIMATES,
    EstimateName,
    LayerEntropy,
    WidthAdvice,
    bound_of,
    estimate_bits,
    layer_entropies,
    lower_bound,
    recommend_width,
)

__all__ = [
    "ESTIMATES",
    "Correction",
    "Estimate",
    "EstimateName",
    "Interval",
    "LayerEntropy",
    "WidthAdvice",
    "bootstrap",
    "bound_of",
    "copula_entropy",
    "dependence",
    "entropy",
    "estimate_bits",
    "layer_entropies",
    "lower_bound",
    "rate",
    "recommend_width",
    "robust_entropy",
    "visit_layers",
]
