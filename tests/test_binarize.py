"""Sections 4.1 to 4.3 of the paper against hand-computed cases and plain NumPy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from bignn.binarize import (
    Binarization,
    binarize_features,
    binarize_vector,
    binarize_weight,
    inner_product_scale,
    sign,
)
from bignn.config import SteRule
from bignn.errors import InputError

vectors = st.lists(st.floats(-10, 10), min_size=1, max_size=7)


def error(v: torch.Tensor, signs: torch.Tensor, scale: torch.Tensor) -> float:
    return float(((v - scale * signs) ** 2).sum())


@given(vectors, st.floats(-12, 12), st.integers(0, 2**7 - 1))
@settings(max_examples=300)
def test_no_other_signs_and_scale_come_closer(values: list[float], scale: float, code: int) -> None:
    v = torch.tensor(values, dtype=torch.float64)
    signs, alpha = binarize_vector(v)
    other = torch.tensor([1.0 if code >> k & 1 else -1.0 for k in range(len(values))])
    assert error(v, signs, alpha) <= error(v, other, torch.tensor(scale)) + 1e-9


@given(vectors)
def test_the_best_scale_for_every_sign_vector_is_still_no_better(values: list[float]) -> None:
    v = torch.tensor(values, dtype=torch.float64)
    best = error(v, *binarize_vector(v))
    for code in range(2 ** len(values)):
        other = torch.tensor([1.0 if code >> k & 1 else -1.0 for k in range(len(values))]).double()
        assert best <= error(v, other, (v * other).mean()) + 1e-9


def test_sign_of_zero_is_plus_one() -> None:
    assert sign(torch.tensor([-1.0, -0.0, 0.0, 2.0])).tolist() == [-1, 1, 1, 1]


def inner_product_errors(t: int, trials: int) -> tuple[float, float]:
    """Mean J_ip with the paper's scale and with its true minimiser, for normal vectors."""
    torch.manual_seed(t)
    i, v = torch.randn(2, trials, t, dtype=torch.float64)
    magnitude = (i * v).abs()
    paper = binarize_vector(i)[1] * binarize_vector(v)[1]
    best = inner_product_scale(i, v)
    return float(((magnitude - paper) ** 2).sum(-1).mean()), float(
        ((magnitude - best) ** 2).sum(-1).mean()
    )


def test_the_papers_inner_product_scale_is_not_the_minimiser_but_close_for_long_vectors() -> None:
    paper, best = inner_product_errors(3, 20000)
    assert 1.05 < paper / best < 1.1
    paper, best = inner_product_errors(1433, 400)
    assert 1 < paper / best < 1.0005


@given(
    st.lists(st.tuples(st.floats(-5, 5), st.floats(-5, 5)), min_size=1, max_size=8),
    st.floats(-30, 30),
)
def test_inner_product_scale_minimises_j_ip(pairs: list[tuple[float, float]], other: float) -> None:
    i, v = torch.tensor(pairs, dtype=torch.float64).T
    target, signs = i * v, sign(i) * sign(v)
    best = error(target, signs, inner_product_scale(i, v))
    assert best <= error(target, signs, torch.tensor(other)) + 1e-9


def numpy_weight_gradient(w: np.ndarray, grad: np.ndarray) -> np.ndarray:
    """Eq. bp-W, entry by entry, in the paper's layout [d_in, d_out]."""
    d_in, d_out = w.shape
    out = np.zeros_like(w)
    b = np.where(w >= 0, 1.0, -1.0)
    for j in range(d_out):
        alpha = np.abs(w[:, j]).sum() / d_in
        inner = sum(grad[k, j] * b[k, j] for k in range(d_in))
        for i in range(d_in):
            out[i, j] = b[i, j] * inner / d_in + alpha * grad[i, j] * (abs(w[i, j]) < 1)
    return out


def test_weights_by_hand() -> None:
    # Column (0.5, -1.5): alpha = 1, B = (1, -1). Incoming gradient (2, 4):
    # first term B_i / 2 * (2*1 + 4*-1) = (-1, 1); second alpha * g * [|w| < 1] = (2, 0).
    weight = torch.tensor([[0.5, -1.5]], requires_grad=True)
    signs, alpha = binarize_weight(weight)
    out = signs * alpha
    assert out.tolist() == [[1.0, -1.0]]
    out.backward(torch.tensor([[2.0, 4.0]]))
    assert weight.grad is not None
    assert weight.grad.tolist() == [[1.0, 1.0]]


def test_weight_gradient_equals_the_written_formula() -> None:
    rng = np.random.default_rng(0)
    w, grad = rng.normal(0, 0.8, (2, 13, 5))
    w[0, 0] = 0.0
    weight = torch.tensor(w.T, requires_grad=True)
    signs, alpha = binarize_weight(weight)
    out = signs * alpha
    assert np.allclose(out.detach().numpy().T, np.where(w >= 0, 1, -1) * np.abs(w).mean(0))
    out.backward(torch.tensor(grad.T))
    assert weight.grad is not None
    assert np.allclose(weight.grad.numpy().T, numpy_weight_gradient(w, grad), rtol=1e-12)


def test_features_by_hand() -> None:
    cases: dict[SteRule, list[float]] = {
        "input": [0.5, 3.0, 0.0, -0.9],
        "gradient": [0.5, 0.0, 0.9, -0.9],
    }
    for ste, expected in cases.items():
        h = torch.tensor([[0.5, -1.0, 2.0, 0.0]], requires_grad=True)
        signs, beta = binarize_features(h, ste)
        assert not beta.requires_grad
        out = signs * beta
        assert out.tolist() == [[0.875, -0.875, 0.875, 0.875]]
        out.backward(torch.tensor([[0.5, 3.0, 0.9, -0.9]]))
        assert h.grad is not None
        assert np.allclose(h.grad.tolist(), [expected])


def test_a_row_of_zeros_still_passes_gradients() -> None:
    h = torch.zeros(1, 3, requires_grad=True)
    signs, beta = binarize_features(h)
    assert signs.tolist() == [[1, 1, 1]]
    (signs * beta).backward(torch.tensor([[0.5, -2.0, 0.0]]))
    assert h.grad is not None
    assert torch.allclose(h.grad, torch.tensor([[0.5, -2.0, 0.0]]))


def test_bad_choices_are_named() -> None:
    with pytest.raises(InputError, match=r"'binarize' must be one of .* got 'all'"):
        Binarization.of("all")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"'ste' must be one of .* got 'none'"):
        Binarization.of("both", "none")  # type: ignore[arg-type]
