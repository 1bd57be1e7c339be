"""Samplers behind PyG's interfaces."""

from typing import Any

NeighborLoader: Any = None
LayerLoader: Any = None
SaintRandomWalkLoader: Any = None
SaintNodeLoader: Any = None
SaintEdgeLoader: Any = None
