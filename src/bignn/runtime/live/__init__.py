"""Graphs that change: answers that are kept, brought up to date row by row, and journalled.

``changes`` checks a batch of changes, ``live_graph`` makes it (natively, csrc/live_layers.h), and
``journal`` and ``stored`` keep a live graph on disk.
"""

from bignn.runtime.live.live_graph import LayerWork, LiveGraph

__all__ = ["LayerWork", "LiveGraph"]
