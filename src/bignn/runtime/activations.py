"""Activations in NumPy, by the names that the operation ``activation`` gives them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[Any]
_ONE, _HALF, _SIXTH = np.float32(1), np.float32(0.5), np.float32(1 / 6)
_SELU_SCALE, _SELU_ALPHA = np.float32(1.0507009873554805), np.float32(1.6732632423543772)
# erfc(z) = t exp(-z² + Σ c_k t^k), t = 1 / (1 + z / 2), z >= 0, to 1.2e-7 of its value (Numerical
# Recipes, 6.2).
_ERFC = (
    *(-1.26551223, 1.00002368, 0.37409196, 0.09678418, -0.18628806, 0.27886807),
    *(-1.13520398, 1.48851587, -0.82215223, 0.17087277),
)


def sigmoid(x: Floats) -> Floats:
    """Compute ``1 / (1 + exp(-x))`` without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, _ONE, small) / (_ONE + small)


def _elu(x: Floats, alpha: np.float32, inner: np.float32 = _ONE) -> Floats:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) * inner))


def _softplus(x: Floats, beta: np.float32 = _ONE) -> Floats:
    made: Floats = np.logaddexp(np.float32(0), x * beta) / beta
    return made


def _gelu(x: Floats, _: np.float32) -> Floats:
    z = np.abs(x).astype(np.float64) / np.sqrt(2)
    t = 1 / (1 + z / 2)
    erfc = t * np.exp(-z * z + np.polynomial.polynomial.polyval(t, _ERFC))
    made: Floats = (x * np.where(x > 0, 1 - erfc / 2, erfc / 2)).astype(np.float32)
    return made


def _gelu_tanh(x: Floats, _: np.float32) -> Floats:
    inner = np.float32(np.sqrt(2 / np.pi)) * (x + np.float32(0.044715) * x * x * x)
    made: Floats = _HALF * x * (_ONE + np.tanh(inner))
    return made


def _hard_share(x: Floats) -> Floats:
    return np.asarray(np.clip(x * _SIXTH + _HALF, 0, 1))


#: A function of x and the operation's ``parameter``, by the name of the activation.
ACTIVATION_FUNCTIONS: dict[str, Callable[[Floats, np.float32], Floats]] = {
    "leaky_relu": lambda x, slope: np.where(x > 0, x, x * slope),
    "elu": _elu,
    "celu": lambda x, alpha: _elu(x, alpha, _ONE / alpha),
    "selu": lambda x, _: _SELU_SCALE * _elu(x, _SELU_ALPHA),
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": lambda x, _: x * sigmoid(x),
    "mish": lambda x, _: x * np.tanh(_softplus(x)),
    "tanh": lambda x, _: np.tanh(x),
    "sigmoid": lambda x, _: sigmoid(x),
    "logsigmoid": lambda x, _: -_softplus(-x),
    "softplus": _softplus,
    "softsign": lambda x, _: x / (_ONE + np.abs(x)),
    "tanhshrink": lambda x, _: x - np.tanh(x),
    "relu6": lambda x, _: np.clip(x, 0, 6),
    "hardtanh": lambda x, limit: np.clip(x, -limit, limit),
    "hardsigmoid": lambda x, _: _hard_share(x),
    "hardswish": lambda x, _: x * _hard_share(x),
}
