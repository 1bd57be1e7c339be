"""Costs of a model before it exists: the paper's analysis of efficiency (Sec. 5) as arithmetic.

Sizes of a graph and of a model in, bytes and cycle operations out, of each layer and in all, float
or binary. No torch, no data. The rules are in :mod:`bignn.cost.counting`; :mod:`bignn.cost.units`
measures what a unit of work takes on this machine, to predict time.
"""

from __future__ import annotations

from bignn.cost.architecture import Architecture, CountedLayer
from bignn.cost.counting import Cost, LayerCost, LayerRatios, Ratios, estimate
from bignn.cost.machines import MachineCost, on_machines
from bignn.cost.sizes import Sizes
from bignn.cost.units import Calibration, calibrate

__all__ = [
    "Architecture",
    "Calibration",
    "Cost",
    "CountedLayer",
    "LayerCost",
    "LayerRatios",
    "MachineCost",
    "Ratios",
    "Sizes",
    "calibrate",
    "estimate",
    "on_machines",
]
