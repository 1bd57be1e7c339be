"""Entropy of neurons by binning (Sec. 6.2), its corrections and its uncertainty. NumPy alone."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bignn.errors import input_error

#: What is done about the bias of counting: nothing, as in the paper, or the first-order term.
Correction = Literal["none", "miller-madow"]

#: Values, and cells of histograms, that are worked on at a time: 8 MiB per temporary array.
_AT_ONCE = 2**20
_MOST_BINS = 2**24
#: So that a range times M is a float.
_LARGEST = 1e300


def entropy(
    values: ArrayLike, bins: int = 200, *, correction: Correction = "none"
) -> NDArray[np.float64]:
    r"""Estimate the entropy of each neuron in bits, by binning.

    ``H(h_k) = -Σ_m p_km log2 p_km``, ``p_km`` the share of samples in bin m of neuron k. A neuron's
    own range [min, max] is cut into M equal bins, closed on the right; the minimum belongs to the
    first. A neuron that is constant has 0 bits. The sum over neurons is the paper's H_ind, the
    entropy of a layer whose neurons are independent: an upper bound for those that are not.

    Counts of N samples underestimate: the Miller-Madow correction adds ``(K - 1) / (2 N ln 2)``, K
    the bins that are not empty.

    Differs from the paper: it gives neither the bins' ends nor the base (2 follows from
    its "storage capacity" of a binary neuron, 1).

    Args:
        values: a row per sample (a node), a column per neuron.
        bins: M.
        correction: ``"none"`` or ``"miller-madow"``.

    Shapes: [N, d] -> [d]; [N] -> a number. Memory beyond the values is bounded by some blocks of 8
    MiB.

    """
    array, bins = checked(values, bins)
    if correction not in get_args(Correction):
        raise input_error("correction", f"one of {list(get_args(Correction))}", repr(correction))
    columns = array.reshape(len(array), -1)
    ranges = Ranges.of(columns)
    bits = np.empty(columns.shape[1])
    for part, counts in _histograms(columns, ranges, bins):
        bits[part] = of_counts(counts, correction)
    return bits.reshape(array.shape[1:])


def robust_entropy(
    values: ArrayLike, bins: int = 200, *, tails: float = 0.01, correction: Correction = "none"
) -> NDArray[np.float64]:
    """Estimate :func:`entropy` with values clipped to the quantiles ``tails`` and ``1 - tails``.

    A few nodes of many neighbours can stretch a neuron's range so far that all others fall into the
    first bins: on musae-github the sum over 128 neurons is 249 bits, and 433 without the outer 1 %.
    The bins are finer by as much, so its bits are not comparable with the paper's at the same M.
    A neuron whose quantiles are equal keeps its own range.
    """
    array, bins = checked(values, bins)
    if not 0 <= tails < 0.5:
        raise input_error("tails", "from 0 to below 0.5", tails)
    columns = array.reshape(len(array), -1)
    bits = np.empty(columns.shape[1])
    width = max(1, _AT_ONCE // max(1, len(columns)))
    for first in range(0, columns.shape[1], width):
        part = columns[:, first : first + width].astype(np.float64)
        low, high = np.quantile(part, [tails, 1 - tails], axis=0)
        spread = high > low
        part[:, spread] = part[:, spread].clip(low[spread], high[spread])
        bits[first : first + width] = entropy(part, bins, correction=correction)
    return bits.reshape(array.shape[1:])


def of_counts(counts: NDArray[Any], correction: Correction = "none") -> NDArray[np.float64]:
    """Compute the entropy in bits of each row of counts [d, M] -> [d]; see :func:`entropy`."""
    total = counts.sum(axis=1)
    p = counts / total[:, None]
    # 0 log 0 is 0; adding 0.0 makes -0.0 of constant neurons 0.0.
    logarithms = np.log2(p, out=np.zeros_like(p), where=p > 0)
    bits: NDArray[np.float64] = -(p * logarithms).sum(axis=1) + 0.0
    if correction == "miller-madow":
        bits += ((counts > 0).sum(axis=1) - 1) / (2 * total * np.log(2))
    return bits


@dataclass(frozen=True)
class Interval:
    """An estimate in bits with its confidence interval.

    Attributes:
        bits: the estimate from all samples.
        low, high: the ends of its confidence interval.
        std: its standard error.

    """

    bits: float
    low: float
    high: float
    std: float


def bootstrap(
    values: ArrayLike,
    bins: int = 200,
    *,
    correction: Correction = "none",
    resamples: int = 200,
    level: float = 0.95,
    seed: int = 0,
) -> Interval:
    """Estimate the uncertainty of :func:`entropy` summed over neurons, by resampling nodes.

    The interval is the "basic" one, ``[2 H - q_high, 2 H - q_low]`` of the resamples' quantiles q:
    a resample underestimates H as H does the truth, and this mirrors the bias instead of doubling
    it. Nodes are drawn whole, so dependence among neurons counts; bins stay those of all samples.
    Neighbouring nodes are not independent samples, so the truth is less certain than this.

    Keeps the bin of every value (1, 2 or 4 bytes each).
    """
    array, bins = checked(values, bins)
    if resamples < 2:
        raise input_error("resamples", "at least 2", resamples)
    if not 0 < level < 1:
        raise input_error("level", "between 0 and 1", level)
    columns = array.reshape(len(array), -1)
    codes = _codes(columns, bins)
    everything = entropy(columns, bins, correction=correction).sum()
    rng = np.random.default_rng(seed)
    size = len(columns)
    sums = np.zeros(resamples)
    for resample in range(resamples):
        times = np.bincount(rng.integers(0, size, size), minlength=size)
        for code in codes:
            counts = np.bincount(code, weights=times, minlength=bins)
            sums[resample] += of_counts(counts[None], correction)[0]
    low, high = np.quantile(sums, [(1 - level) / 2, (1 + level) / 2])
    bits = float(everything)
    return Interval(bits, 2 * bits - float(high), 2 * bits - float(low), float(sums.std(ddof=1)))


@dataclass(frozen=True)
class Estimate:
    """The :func:`entropy` summed over neurons, for one number of bins and one of samples."""

    bins: int
    samples: int
    bits: float
    corrected_bits: float


def dependence(
    values: ArrayLike, bins: Sequence[int], samples: Sequence[int] = (), *, seed: int = 0
) -> list[Estimate]:
    """Estimate the sum of :func:`entropy` for every pair of a number of bins and of samples.

    Samples are the first of one random order of all nodes, so smaller ones are parts of larger
    ones; none given means all nodes.
    """
    array, _ = checked(values, max(bins, default=0))
    columns = array.reshape(len(array), -1)
    for size in samples:
        if not 1 <= size <= len(columns):
            raise input_error("samples", f"numbers from 1 to {len(columns)}", size)
    order = np.random.default_rng(seed).permutation(len(columns))
    rows = []
    for size in samples or [len(columns)]:
        some = columns if size == len(columns) else columns[np.sort(order[:size])]
        for number in bins:
            plain, corrected = (
                float(entropy(some, number, correction=kind).sum()) for kind in get_args(Correction)
            )
            rows.append(Estimate(number, size, plain, corrected))
    return rows


def checked(values: ArrayLike, bins: int) -> tuple[NDArray[Any], int]:
    """Check the values and M; return an array [N] or [N, d] of at least one sample, and M."""
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError) as error:
        line = str(error).splitlines()[0]
        raise input_error(
            "values", "an array of numbers [samples, neurons]", f"({line})"
        ) from error
    if array.dtype.kind not in "fiub":
        raise input_error("values", "an array of numbers", f"dtype {array.dtype}")
    if array.ndim not in (1, 2):
        raise input_error("values", "[samples] or [samples, neurons]", f"shape {list(array.shape)}")
    if len(array) == 0:
        raise input_error("values", "at least one sample", f"shape {list(array.shape)}")
    try:
        bins = operator.index(bins)
    except TypeError:
        raise input_error("bins", "a whole number", repr(bins)) from None
    if not 1 <= bins <= _MOST_BINS:
        raise input_error("bins", f"from 1 to {_MOST_BINS}", bins)
    return array, bins


@dataclass(frozen=True)
class Ranges:
    """The smallest and largest value of each neuron [d]."""

    low: NDArray[np.float64]
    high: NDArray[np.float64]

    @classmethod
    def of(cls, columns: NDArray[Any]) -> Ranges:
        """Find the range of each column; values must be finite."""
        width = columns.shape[1]
        low, high = np.full(width, np.inf), np.full(width, -np.inf)
        for rows in _blocks(len(columns), width):
            np.minimum(low, columns[rows].min(axis=0), out=low)
            np.maximum(high, columns[rows].max(axis=0), out=high)
        # NaN goes through min and max, and compares as False.
        usable = (low >= -_LARGEST) & (high <= _LARGEST)
        if not usable.all():
            number = int(np.argmin(usable))
            found = f"{low[number]:g} to {high[number]:g}" if low[number] <= high[number] else "NaN"
            got = f"{found} in neuron {number}"
            expected = f"numbers, none beyond {_LARGEST:g} in size"
            raise input_error("values", expected, got, "did training diverge?")
        return cls(low, high)

    @property
    def span(self) -> NDArray[np.float64]:
        """The width of each range."""
        return self.high - self.low


def _blocks(num_rows: int, width: int) -> Iterator[slice]:
    step = max(1, _AT_ONCE // max(1, width))
    for start in range(0, num_rows, step):
        yield slice(start, start + step)


def _binned(block: NDArray[Any], ranges: Ranges, part: slice, bins: int) -> NDArray[np.int64]:
    """Find the bin of every value of some rows and some columns."""
    span = ranges.span[part]
    places = block - ranges.low[part]
    # First times M, then by the span: values that lie on an edge, as whole numbers do, stay there.
    places *= bins
    places /= np.where(span > 0, span, 1)
    np.ceil(places, out=places)
    places -= 1
    return np.clip(places, 0, bins - 1, out=places).astype(np.int64)


def _histograms(
    columns: NDArray[Any], ranges: Ranges, bins: int
) -> Iterator[tuple[slice, NDArray[np.int64]]]:
    """Yield counts [some columns, M], some columns at a time."""
    width = columns.shape[1]
    step = max(1, _AT_ONCE // bins)
    for start in range(0, width, step):
        part = slice(start, min(start + step, width))
        size = part.stop - start
        first = bins * np.arange(size)
        counts = np.zeros(size * bins, dtype=np.int64)
        for rows in _blocks(len(columns), size):
            codes = _binned(columns[rows, part], ranges, part, bins) + first
            counts += np.bincount(codes.ravel(), minlength=len(counts))
        yield part, counts.reshape(size, bins)


def _codes(columns: NDArray[Any], bins: int) -> NDArray[Any]:
    """Find the bin of every value, a row per neuron, in the smallest type that holds M."""
    ranges = Ranges.of(columns)
    codes = np.empty(columns.shape[::-1], dtype=np.min_scalar_type(bins))
    for rows in _blocks(*columns.shape):
        codes[:, rows] = _binned(columns[rows], ranges, slice(None), bins).T
    return codes
