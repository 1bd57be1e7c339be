"""Graphs past memory: a store of bits and edges on disk, packed by streaming, opened by mapping.

:mod:`~bignn.runtime.store.predict_store` runs a packed model over it, layer by layer.
"""

from bignn.runtime.store.store import Store, is_store

__all__ = ["Store", "is_store"]
