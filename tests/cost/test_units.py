"""Operations times unit costs, and how unit costs are fitted."""

import numpy as np
import pytest

import bignn
from bignn.cost import units
from bignn.kernels import native
from bignn.runtime.planner import LayerPlan, Plan
from bignn.runtime.unit_costs import UNITS


def test_every_unit_is_fitted_once() -> None:
    assert sorted(unit for group in units._GROUPS for unit in group) == sorted(UNITS)


def test_the_fit_finds_the_factors_behind_the_times() -> None:
    rng = np.random.default_rng(0)
    factors = 3 * rng.uniform(0.5, 2, 6)  # a slower machine, and not evenly so
    work = rng.exponential(1, (60, 6))
    shares = work / (work @ factors)[:, None]  # predicted parts of the measured time
    assert units._fitted(shares) == pytest.approx(factors, rel=0.1)


def test_what_no_layer_does_takes_the_factor_of_all() -> None:
    shares = np.array([[0.5, 0.0], [0.5, 0.0]])
    assert units._fitted(shares) == pytest.approx([2, 2])


def test_predicted_seconds_are_operations_times_unit_costs() -> None:
    layers = [
        LayerPlan(1, 1, "T", {"T": {"xnor": 6.0, "row": 1.0}, "G": {"row": 9.0}}, {}, {}),
        LayerPlan(1, 1, "G", {"T": {"row": 9.0}, "G": {"bit": 4.0}}, {}, {}),
    ]
    costs = {"xnor": 2.0, "row": 3.0, "bit": 5.0}
    assert Plan(layers).predicted(costs) == 6 * 2 + 3 + 4 * 5
    assert Plan(layers, threads=5).predicted(costs) == 7


@pytest.mark.skipif(not native.is_available(), reason="there is nothing to measure")
def test_calibration_prices_every_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = (
        units._Shape(300, 5, (150, 64, 8), ("TT", "ST"), ones=10),
        units._Shape(200, 64, (70, 20, 8), ("GG",)),
    )
    monkeypatch.setattr(units, "_SHAPES", shapes)
    found = bignn.cost.calibrate()
    assert set(found.units) == set(UNITS)
    assert min(found.units.values()) > 0
    assert found.cycle > 0


def test_calibration_needs_native_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "checked_backend", lambda _: "reference")
    with pytest.raises(bignn.InputError, match="'backend' must be a native one"):
        bignn.cost.calibrate()


def test_random_bits_have_no_padding() -> None:
    words = units.random_bits(9, 70, np.random.default_rng(0))
    assert words.shape == (9, 2)
    assert (words[:, 1] < 2**6).all()
    assert (words[:, 1] > 0).any()
