"""Packed models and packed graphs: what a deployment needs, without torch.

May import ``kernels`` and ``graph``.
"""

from bignn.runtime.live import LayerWork, LiveGraph
from bignn.runtime.packed_graph import PackedGraph, pack_graph
from bignn.runtime.packed_model import ModelSizes, PackedModel
from bignn.runtime.planner import LayerPlan, Plan
from bignn.runtime.predicted_values import Output
from bignn.runtime.storage import open_packed

__all__ = [
    "LayerPlan",
    "LayerWork",
    "LiveGraph",
    "ModelSizes",
    "Output",
    "PackedGraph",
    "PackedModel",
    "Plan",
    "open_packed",
    "pack_graph",
]
