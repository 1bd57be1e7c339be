"""Bits are where the module's page puts them, and padding is 0."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from bignn import bits
from bignn.errors import InputError


def test_sign_of_zero_is_plus_one() -> None:
    assert bits.sign([-2.0, -0.0, 0.0, 3.0]).tolist() == [-1, 1, 1, 1]
    assert bits.unpack(bits.pack([0.0, -1.0]), 2).tolist() == [1, -1]


def test_every_bit_is_in_its_place_and_padding_is_zero() -> None:
    for num_bits in (0, 1, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1433):
        x = np.random.default_rng(num_bits).standard_normal((3, num_bits))
        words = bits.pack(x)
        assert words.shape == (3, -(-num_bits // 64))
        for row, packed in zip(x, words, strict=True):
            for k in range(words.shape[1] * 64):
                bit = int(packed[k // 64]) >> (k % 64) & 1
                assert bit == (k < num_bits and row[k] >= 0), (num_bits, k)


@given(
    hnp.arrays(
        np.float32,
        st.tuples(st.integers(0, 7), st.integers(0, 200)),
        elements=st.floats(width=32, allow_nan=False),
    )
)
def test_unpack_undoes_pack(x: np.ndarray) -> None:
    assert np.array_equal(bits.unpack(bits.pack(x), x.shape[1]), bits.sign(x))


def test_what_has_no_sign_is_refused() -> None:
    with pytest.raises(InputError, match="'x' must be free of NaN"):
        bits.pack([1.0, np.nan])
    with pytest.raises(InputError, match="'x' must be an array of real numbers"):
        bits.sign(np.array(["a"]))
    with pytest.raises(InputError, match="at least one dimension"):
        bits.pack(1.0)


def test_a_wrong_number_of_bits_is_refused() -> None:
    words = bits.pack(np.ones((2, 65)))
    with pytest.raises(
        InputError, match=r"'num_bits' must be in \(64, 128\] for 2 words per row, got 500"
    ):
        bits.unpack(words, 500)
    with pytest.raises(InputError, match="'words' must be a uint64 array"):
        bits.unpack(words.astype(np.int64), 65)
