"""PyG loaders of sampled pieces of a graph that need no pyg-lib, torch-sparse or torch-cluster.

Batches depend on torch's generator alone: they are the same for any number of workers, and new in
every epoch.
"""

from __future__ import annotations

from bignn.loaders.layer import LayerLoader
from bignn.loaders.neighbor import NeighborLoader, NeighborSampler
from bignn.loaders.saint import SaintEdgeLoader, SaintNodeLoader, SaintRandomWalkLoader
from bignn.loaders.store import BitFeatures, MappedEdges, open_store

__all__ = [
    "BitFeatures",
    "LayerLoader",
    "MappedEdges",
    "NeighborLoader",
    "NeighborSampler",
    "SaintEdgeLoader",
    "SaintNodeLoader",
    "SaintRandomWalkLoader",
    "open_store",
]
