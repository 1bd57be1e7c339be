"""dropout(F) Wᵀ in its three forms: the same products, the same gradients, the same chances."""

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from bignn import bits, ops
from bignn.binarize import binarize_features, sign
from bignn.config import DropMode
from bignn.kernels.masked import KEEP_SCALE, keep_out_of
from bignn.nn import Linear
from bignn.nn.binary_product import binary_product
from bignn.nn.features import BinaryRows

DROPS: list[DropMode] = ["all", "present"]


def rows(n: int, d: int, *, ones: float = 0.5, seed: int = 0) -> BinaryRows:
    """Signs of which a share is +1."""
    generator = torch.Generator().manual_seed(seed)
    signs = torch.where(torch.rand(n, d, generator=generator) < ones, 1.0, -1.0)
    return BinaryRows(signs, torch.rand(n, 1, generator=generator) + 0.5)


def weights(m: int, d: int) -> Tensor:
    return sign(torch.randn(m, d, generator=torch.Generator().manual_seed(9))).requires_grad_()


def drawn(x: BinaryRows, p: float, drop: DropMode, seed: int) -> Tensor:
    """The matrix that is multiplied when torch's seed is this one, by the plain formula."""
    torch.manual_seed(seed)
    keep = keep_out_of(p)
    masks = ops.draw_masks(x.deviating if drop == "present" else x.everywhere, keep)
    kept = torch.from_numpy(bits.unpack(masks.numpy().view("uint64"), x.shape[1]) > 0)
    scale = KEEP_SCALE / keep
    if drop == "all":
        return torch.where(kept, x.signs * scale, 0.0)
    return x.usual + torch.where(kept, (x.signs - x.usual) * scale, 0.0)


def test_bits_give_the_plain_formulas() -> None:
    for n, d, m in [(1, 1, 1), (5, 63, 4), (40, 129, 17), (200, 64, 3)]:
        for p in [0.0, 0.3, 0.8]:
            for drop in DROPS:
                x = rows(n, d)
                assert x.deviations is None or d == 1
                weight = weights(m, d)
                g = torch.randn(n, m)
                torch.manual_seed(3)
                out = binary_product(x, weight, p, drop=drop, is_binary=True)
                (mine,) = torch.autograd.grad(out, weight, g)
                plain = functional.linear(drawn(x, p, drop, 3), weight) * x.beta
                (theirs,) = torch.autograd.grad(plain, weight, g)
                assert torch.allclose(out, plain, rtol=1e-5, atol=1e-4)
                assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-4 * n**0.5)


def test_features_get_their_gradient_whatever_may_be_dropped() -> None:
    for ones in [0.005, 0.4]:
        base = rows(40, 300, ones=ones).signs * 0.5
        found = []
        drops: list[DropMode] = ["all", "present"]
        for drop in drops:
            layer = Linear(300, 6, binarize="both", drop=drop, dropout=0.5).eval()
            layer.weight.data.copy_(torch.randn(6, 300, generator=torch.Generator().manual_seed(1)))
            x = base.clone().requires_grad_()
            before = torch.random.get_rng_state()
            layer(x).square().sum().backward()
            assert torch.equal(before, torch.random.get_rng_state())  # nothing is drawn
            assert x.grad is not None
            found.append(x.grad)
        assert found[0].abs().min() > 0
        assert torch.allclose(found[0], found[1], rtol=1e-4)
        x = base.clone().requires_grad_()
        layer.train()(x).sum().backward()
        assert x.grad is not None
        kept = x.grad != 0
        assert 0.4 < kept.float().mean() <= 1


def test_present_dropout_in_half_precision_and_compiled() -> None:
    for ones in [0.005, 0.4]:
        x, weight = rows(30, 256, ones=ones), weights(4, 256).detach()
        exact = functional.linear(x.signs, weight) * x.beta
        half = BinaryRows(x.signs.bfloat16(), x.beta.bfloat16())
        low = weight.bfloat16().requires_grad_()
        out = binary_product(half, low, 0.2, drop="present", is_binary=True)
        out.sum().backward()
        assert out.dtype == torch.bfloat16
        assert low.grad is not None

        def product(signs: Tensor, weight: Tensor, beta: Tensor) -> Tensor:
            some = BinaryRows(signs, beta)
            return binary_product(some, weight, 0.0, drop="present", is_binary=True)

        compiled = torch.compile(product, fullgraph=True, backend="eager")
        made = compiled(x.signs, weight.clone().requires_grad_(), x.beta)
        assert torch.allclose(made, exact, atol=1e-4)


def test_gradients_reach_hidden_features() -> None:
    for p in [0.0, 0.5]:
        h = torch.randn(30, 70, requires_grad=True)
        signs, beta = binarize_features(h)
        weight = weights(5, 70)
        x = BinaryRows(signs, beta)
        torch.manual_seed(4)
        out = binary_product(x, weight, p, drop="all", is_binary=True)
        g = torch.randn(30, 5)
        (mine,) = torch.autograd.grad(out, h, g)
        kept = drawn(x, p, "all", 4).detach() / x.signs.detach()  # 0 or 1 / (1 - p)
        expected = kept * ((g * beta) @ weight.detach()) / beta * (h.abs() <= 1)
        assert torch.allclose(mine, expected, atol=1e-4)


def test_few_deviations_give_the_plain_formula() -> None:
    x = rows(50, 400, ones=0.005)
    assert x.deviations is not None
    assert torch.equal(x.usual, -torch.ones(1, 400))
    weight = weights(6, 400)
    exact = functional.linear(x.signs, weight) * x.beta
    assert torch.allclose(binary_product(x, weight, 0.0, drop="present", is_binary=True), exact)
    g = torch.randn(50, 6)
    out = binary_product(x, weight, 0.0, drop="present", is_binary=True)
    (mine,) = torch.autograd.grad(out, weight, g)
    (theirs,) = torch.autograd.grad(exact, weight, g)
    assert torch.allclose(mine, theirs, atol=1e-4)


def test_rows_of_a_batch_are_taken_where_they_are_used() -> None:
    nodes, some = torch.tensor([7, 3, 3, 49]), torch.tensor([2, 0])
    for ones in [0.005, 0.4]:
        x, weight = rows(50, 400, ones=ones), weights(6, 400)
        taken = x.rows(nodes)
        product = binary_product(taken, weight, 0.0, drop="present", is_binary=True)
        expected = binary_product(x, weight, 0.0, drop="present", is_binary=True)
        assert torch.allclose(product, expected[nodes], rtol=1e-5, atol=1e-4)
        again = taken.rows(some)
        for found, places in [(taken, nodes), (again, nodes[some])]:
            # Of rows with few deviations no product has read all entries so far.
            assert (found._signs is None) == (ones == 0.005 or found is again)
            assert found.shape == (len(places), 400)
            assert torch.equal(found.beta, x.beta[places])
            assert torch.equal(found.usual, x.usual)
            assert torch.equal(found.words, x.words[places])
            assert torch.equal(found.signs, x.signs[places])


def test_means_and_spreads_of_dropout() -> None:
    """Every form has the mean of no dropout, and the spread that the formula has."""
    for ones, form in [(0.005, "few"), (0.4, "bits"), (0.4, "floats")]:
        for drop in DROPS:
            x = rows(400, 320, ones=ones)
            weight = weights(8, 320).detach().requires_grad_()
            p, repeats = 0.6, 30
            exact = functional.linear(x.signs, weight)
            torch.manual_seed(0)
            is_binary = form != "floats"  # weights taken for floats go the plain way
            found = torch.stack(
                [
                    (binary_product(x, weight, p, drop=drop, is_binary=is_binary) / x.beta).detach()
                    for _ in range(repeats)
                ]
            )
            dropped = x.signs if drop == "all" else x.signs - x.usual
            variance = (dropped**2).sum(dim=1, keepdim=True) * p / (1 - p)
            standardised = (found - exact.detach()) / variance.clamp(min=1e-9).sqrt()
            standardised = standardised[:, variance[:, 0] > 0]
            count = standardised.numel() / 8  # columns of W share their draws
            assert abs(float(standardised.mean())) < 5 / math.sqrt(count)
            assert abs(float((standardised**2).mean()) - 1) < 0.1


def test_without_gradients_it_is_the_xnor_product() -> None:
    x, weight = rows(20, 100), weights(7, 100)
    with torch.no_grad():
        out = binary_product(x, weight, 0.0, drop="all", is_binary=True)
    assert torch.equal(out, functional.linear(x.signs, weight.detach()) * x.beta)


def test_balanced_columns_have_as_many_of_both_signs() -> None:
    for size in [3, 4, 65, 100]:
        layer = Linear(size, 9, binarize="both", balance=True)
        with torch.no_grad():
            layer.weight.add_(torch.randn(9, 1))
        signs, alpha = layer.binary_weight()
        assert (signs.sum(dim=1).abs() <= 1).all()
        middle = np.median(layer.weight.detach().numpy(), axis=1, keepdims=True)
        expected = np.abs(layer.weight.detach().numpy() - middle).mean(axis=1, keepdims=True)
        assert np.allclose(alpha.detach().numpy(), expected, atol=1e-6)
        # The median is taken for a constant: gradients are those of the binarization alone.
        alpha.sum().backward()
        assert layer.weight.grad is not None
        assert torch.allclose(layer.weight.grad, signs / size)


def test_masks_follow_torchs_seed() -> None:
    x, weight = rows(20, 100), weights(7, 100)

    def draw(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return binary_product(x, weight, 0.5, drop="all", is_binary=True)

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
