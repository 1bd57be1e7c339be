"""The p-values are SciPy's."""

import math

import pytest
from scipy import stats

from bignn.lab.paper.welch import p_value


@pytest.mark.parametrize("counts", [(2, 2), (2, 10), (5, 10), (20, 10), (100, 3), (400, 400)])
@pytest.mark.parametrize("stds", [(1.0, 1.0), (0.0, 0.5), (0.3, 0.0), (0.01, 3.0), (2.0, 1e-6)])
@pytest.mark.parametrize("difference", [0.0, 1e-4, 0.01, 0.3, 1.0, 4.0, 60.0])
def test_p_values_are_scipys(
    counts: tuple[int, int], stds: tuple[float, float], difference: float
) -> None:
    ours = (81.0 + difference, stds[0], counts[0])
    theirs = (81.0, stds[1], counts[1])
    expected = stats.ttest_ind_from_stats(*ours, *theirs, equal_var=False).pvalue
    assert p_value(ours, theirs) == pytest.approx(expected, rel=1e-9, abs=1e-300)


@pytest.mark.parametrize("t", [1e-9, 1e-3, 1.0, 1e3, 1e9])
def test_one_degree_of_freedom_is_cauchys(t: float) -> None:
    """``P(|T| > t) = 1 - 2 atan(t) / π``."""
    one_varies = (0.0, 2**0.5, 2), (t, 0.0, 2)  # v = 1, so T = t with one degree of freedom
    assert p_value(*one_varies) == pytest.approx(2 * math.atan(1 / t) / math.pi, rel=1e-12)
    assert p_value((0.0, 2**0.5, 2), (1.0, 0.0, 2)) == pytest.approx(0.5)
