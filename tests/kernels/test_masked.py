"""Products under a mask and their gradients, against NumPy on unpacked arrays."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from bignn import InputError, bits, kernels
from bignn.kernels import masked, native

SIZES = [
    *[(1, 1, 1), (3, 63, 2), (4, 64, 16), (5, 65, 17), (2, 127, 3), (130, 128, 5), (7, 129, 64)],
    *[(257, 200, 33), (128, 31, 4), (129, 640, 7), (70, 130, 65), (33, 65, 129)],
]
BACKENDS = kernels.available_backends()


def matrices(
    n: int, d: int, m: int, seed: int = 0
) -> tuple[NDArray[np.int8], NDArray[np.int8], NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    return (
        bits.sign(rng.standard_normal((n, d))),
        bits.sign(rng.standard_normal((m, d))),
        rng.standard_normal((n, m)).astype(np.float32),
    )


def everywhere(n: int, d: int) -> NDArray[np.uint64]:
    return bits.pack(np.ones((n, d)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_masked_products_and_gradients(backend: str) -> None:
    for size, keep in product(SIZES, [1, 1024, 2458, 4095, 4096]):
        check_products_and_gradients(backend, size, keep)


def check_products_and_gradients(backend: str, size: tuple[int, int, int], keep: int) -> None:
    n, d, m = size
    f, b, g = matrices(n, d, m)
    masks = masked.draw_masks(3, keep, everywhere(n, d), backend=backend)
    kept = bits.unpack(masks, d) > 0
    left = np.where(kept, f, 0)
    dots = masked.masked_matmul(bits.pack(f), masks, bits.pack(b), d, backend=backend)
    assert dots.dtype == np.float32
    assert np.array_equal(dots, left @ b.T.astype(np.int32)), (size, keep)
    gradient = masked.masked_gradient(bits.pack(f), masks, d, g, backend=backend)
    exact = g.T.astype(np.float64) @ left
    assert np.allclose(gradient, exact, rtol=0, atol=1e-5 * n**0.5), (size, keep)
    x = np.random.default_rng(1).standard_normal((n, d)).astype(np.float32)
    expected = np.where(kept, x, 0)
    assert np.array_equal(masked.keep_masked(x, masks, backend=backend), expected), (size, keep)


@pytest.mark.parametrize("backend", native.supported())
@given(
    seed=st.integers(0, 2**63 - 1),
    keep=st.integers(1, masked.KEEP_SCALE),
    n=st.integers(0, 40),
    d=st.integers(1, 200),
)
@settings(deadline=None, max_examples=40)
def test_masks_are_the_same_everywhere(backend: str, seed: int, keep: int, n: int, d: int) -> None:
    among = bits.pack(np.random.default_rng(seed % 1000).standard_normal((n, d)))
    expected = masked.draw_masks(seed, keep, among, backend="reference")
    assert np.array_equal(masked.draw_masks(seed, keep, among, backend=backend), expected)
    assert not (expected & ~among).any()


def test_masks_keep_the_share_they_are_asked_for() -> None:
    among = everywhere(4000, 640)
    size = 4000 * 640
    for p in (0.1, 0.4, 0.5, 0.8):
        keep = masked.keep_out_of(p)
        masks = masked.draw_masks(11, keep, among)
        share = np.bitwise_count(masks).sum() / size
        expected = keep / masked.KEEP_SCALE
        assert abs(expected - (1 - p)) <= 0.5 / masked.KEEP_SCALE
        assert abs(share - expected) < 5 * (p * (1 - p) / size) ** 0.5
        # Neighbouring bits, words and rows do not know of each other.
        kept = (bits.unpack(masks, 640) > 0) - expected
        for a, b in ((kept[:, 1:], kept[:, :-1]), (kept[:, 64:], kept[:, :-64])):
            assert abs((a * b).mean()) < 5 * p * (1 - p) / size**0.5
        assert abs((kept[1:] * kept[:-1]).mean()) < 5 * p * (1 - p) / size**0.5
    assert not np.array_equal(masked.draw_masks(1, 2048, among), masked.draw_masks(2, 2048, among))


def test_gradients_do_not_depend_on_threads() -> None:
    f, _, g = matrices(300, 900, 37)
    masks = masked.draw_masks(5, 3000, everywhere(300, 900))
    before = native.num_threads()
    found = []
    try:
        for threads in (1, 2, 4):
            native.set_num_threads(threads)
            found.append(masked.masked_gradient(bits.pack(f), masks, 900, g))
    finally:
        native.set_num_threads(before)
    assert np.array_equal(found[0], found[1])
    assert np.array_equal(found[0], found[2])


def test_shares_that_make_no_sense() -> None:
    assert native.keep_bits() in (None, masked.KEEP_SCALE.bit_length() - 1)
    for p in (-0.1, 1.0, float("nan")):
        with pytest.raises(InputError, match=r"'p' must be in \[0, 1\)"):
            masked.keep_out_of(p)
    assert masked.keep_out_of(1 - 1e-9) == 1


@pytest.mark.skipif(not native.supported(), reason="no native extension")
def test_arrays_that_do_not_fit_are_refused() -> None:
    f, b, g = matrices(6, 70, 3)
    rows, masks, columns = bits.pack(f), everywhere(6, 70), bits.pack(b)
    isa = native.supported()[0]
    with pytest.raises(ValueError, match="rows and masks do not fit"):
        native.masked_matmul(rows, masks[:5], columns, 70, isa)
    with pytest.raises(ValueError, match="rows and masks do not fit"):
        native.masked_gradient(rows, masks, 200, g, isa)
    with pytest.raises(ValueError, match="g or out of the wrong shape"):
        native.masked_gradient(rows, masks, 70, g[:5], isa)
    with pytest.raises(ValueError, match="panels of the wrong shape"):
        native.masked_matmul(rows, masks, columns[:, :1], 70, isa)
    with pytest.raises(ValueError, match="masks or out of the wrong shape"):
        native.keep_masked(np.zeros((6, 130), np.float32), masks, isa)
    for keep in (0, 4097):
        with pytest.raises(ValueError, match="nothing to keep"):
            native.draw_masks(1, keep, masks, masks.copy(), isa)
