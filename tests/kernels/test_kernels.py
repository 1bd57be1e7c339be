from itertools import product

import numpy as np
import pytest
from conftest import runnable
from hypothesis import given
from hypothesis import strategies as st
from layer_problems import misaligned

from bignn import _native, bits, kernels
from bignn.errors import InputError
from bignn.kernels import native

BACKENDS = ["reference", *native.INSTRUCTION_SETS]
WIDTHS = [0, 1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1433, 2100]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    return runnable(request.param)


def test_the_extension_is_built_and_its_best_kernels_are_the_default() -> None:
    assert native.is_available()
    assert kernels.default_backend() == native.supported()[-1]


def test_pack_equals_the_definition(backend: str) -> None:
    for num_rows, num_bits in product([0, 1, 7], WIDTHS):
        x = np.random.default_rng(0).standard_normal((num_rows, num_bits)).astype(np.float32)
        x[:, ::5] = 0
        x[:, 1::5] = -0.0
        packed = kernels.pack_rows(x, backend=backend)
        assert np.array_equal(packed, bits.pack(x)), (num_rows, num_bits)


def test_xnor_equals_the_product_of_signs(backend: str) -> None:
    sizes = [(0, 3), (1, 1), (3, 0), (7, 9), (4, 8), (13, 65)]
    for (num_rows, num_columns), num_bits in product(sizes, WIDTHS):
        rng = np.random.default_rng(num_bits)
        a = rng.standard_normal((num_rows, num_bits))
        b = rng.standard_normal((num_columns, num_bits))
        dots = kernels.xnor_matmul(bits.pack(a), bits.pack(b), num_bits, backend=backend)
        expected = bits.sign(a).astype(np.int64) @ bits.sign(b).astype(np.int64).T
        assert dots.dtype == np.int32
        assert np.array_equal(dots, expected), (num_rows, num_columns, num_bits)


@given(st.integers(0, 9), st.integers(0, 17), st.integers(0, 300), st.integers(0, 2**32 - 1))
def test_all_backends_agree(rows: int, columns: int, num_bits: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a = bits.pack(rng.standard_normal((rows, num_bits)))
    b = bits.pack(rng.standard_normal((columns, num_bits)))
    oracle = kernels.xnor_matmul(a, b, num_bits, backend="reference")
    for backend in kernels.available_backends():
        assert np.array_equal(kernels.xnor_matmul(a, b, num_bits, backend=backend), oracle)


def test_all_ones_and_extremes(backend: str) -> None:
    ones = bits.pack(np.ones((5, 4096)))
    minus = bits.pack(-np.ones((5, 4096)))
    assert (kernels.xnor_matmul(ones, ones, 4096, backend=backend) == 4096).all()
    assert (kernels.xnor_matmul(ones, minus, 4096, backend=backend) == -4096).all()


def test_strided_input_is_read_correctly(backend: str) -> None:
    x = np.random.default_rng(1).standard_normal((20, 130)).astype(np.float32)
    assert np.array_equal(kernels.pack_rows(x[::2], backend=backend), bits.pack(x[::2]))
    words = bits.pack(x)
    assert np.array_equal(
        kernels.xnor_matmul(words[::2], words[1::3], 130, backend=backend),
        kernels.xnor_matmul(words[::2].copy(), words[1::3].copy(), 130, backend="reference"),
    )


def test_misaligned_input_is_read_correctly(backend: str) -> None:
    x = np.random.default_rng(2).standard_normal((20, 130)).astype(np.float32)
    words = bits.pack(x)
    assert np.array_equal(kernels.pack_rows(misaligned(x), backend=backend), words)
    assert np.array_equal(
        kernels.xnor_matmul(misaligned(words), misaligned(words), 130, backend=backend),
        kernels.xnor_matmul(words, words, 130, backend="reference"),
    )
    columns = kernels.prepare_columns(misaligned(words), 130, backend=backend)
    with pytest.raises(InputError, match=r"'a, out' must be contiguous, got .* or not aligned"):
        kernels.xnor_matmul_into(words, columns, misaligned(np.empty((20, 20), dtype=np.int32)))


def test_wrong_shapes_never_reach_a_kernel() -> None:
    x, words = np.ones((3, 130), dtype=np.float32), np.zeros((3, 3), dtype=np.uint64)
    columns, out = native.panels(words), np.empty((3, 3), dtype=np.int32)
    isa = native.supported()[0]
    for wrong in (words[:2], words[:, :2].copy()):
        with pytest.raises(ValueError, match="words of the wrong shape"):
            _native.pack(x, wrong, isa)
    for rows, num_bits, to, begin, end in (
        (words, 64, out, 0, 3),
        (words, 130, out, 0, 4),
        (words, 130, out, 2, 1),
        (words, 130, out[:2], 0, 3),
    ):
        with pytest.raises(ValueError, match="rows of the wrong shape"):
            native.xnor_into(rows, columns, num_bits, to, begin, end, isa)
    wide = np.empty((3, 17), dtype=np.int32)
    for panels, to in ((columns, wide), (columns[:, :4].copy(), out)):
        with pytest.raises(ValueError, match="panels of the wrong shape"):
            native.xnor_into(words, panels, 130, to, 0, 3, isa)


def test_no_cast_changes_a_sign(backend: str) -> None:
    tiny = np.array([[-1e-50, 1e-50, -0.0]])
    assert np.array_equal(kernels.pack_rows(tiny, backend=backend), bits.pack(tiny))


def test_bad_arguments_name_themselves() -> None:
    words = bits.pack(np.ones((2, 64)))
    with pytest.raises(InputError, match=r"'backend' must be one of .* got 'mmx'"):
        kernels.xnor_matmul(words, words, 64, backend="mmx")
    with pytest.raises(InputError, match="'num_bits' must be in"):
        kernels.xnor_matmul(words, words, 65)
    with pytest.raises(InputError, match="'a' must be a matrix of packed rows"):
        kernels.xnor_matmul(words[0], words, 64)
    with pytest.raises(InputError, match="'x' must be free of NaN"):
        kernels.pack_rows(np.array([[np.nan]], dtype=np.float32))
