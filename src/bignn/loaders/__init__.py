"""PyG loaders of sampled pieces of a graph that need no pyg-lib, torch-sparse or torch-cluster.

What they yield depends on torch's generator alone: the same batches for any number of workers,
others in every epoch.
"""

from __future__ import annotations

from bignn.loaders.layer import LayerLoader
from bignn.loaders.neighbor import NeighborLoader, NeighborSampler
from bignn.loaders.saint import SaintEdgeLoader, SaintNodeLoader, SaintRandomWalkLoader

__all__ = [
    "LayerLoader",
    "NeighborLoader",
    "NeighborSampler",
    "SaintEdgeLoader",
    "SaintNodeLoader",
    "SaintRandomWalkLoader",
]
