"""Packed models and packed graphs: what a deployment needs, without torch.

May import ``kernels`` and ``graph``.
"""

from bignn.runtime.packed_graph import PackedGraph, pack_graph
from bignn.runtime.packed_model import Kind, PackedModel
from bignn.runtime.planner import LayerPlan, Plan
from bignn.runtime.storage import open_packed

__all__ = ["Kind", "LayerPlan", "PackedGraph", "PackedModel", "Plan", "open_packed", "pack_graph"]
