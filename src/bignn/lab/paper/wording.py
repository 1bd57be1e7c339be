"""Writes our results beside the paper's."""

from __future__ import annotations

from bignn.lab.paper.results import Summary

NOT_MEASURED = "not measured here"
#: The synthetic graphs of a dataset's sizes that ``bignn bench`` measures, and their names.
SHAPES_OF = {
    "reddit": {"reddit": "Reddit", "reddit-saint": "Reddit, GraphSAINT's edges"},
    "flickr": {"flickr": "Flickr"},
    "ogbn-arxiv": {"arxiv": "OGBN-Arxiv"},
    "ogbn-products": {"products": "OGBN-Products"},
}


def accuracy(summary: Summary | None) -> str:
    """Write mean ± standard deviation."""
    return NOT_MEASURED if summary is None else summary.plus_minus()


def difference(ours: Summary | None, papers: tuple[float, float] | None) -> str:
    """Write our mean minus the paper's."""
    return "" if ours is None or papers is None else f"{ours.mean - papers[0]:+.1f}"


def published(papers: tuple[float, float] | None) -> str:
    """Write the paper's mean ± standard deviation."""
    return "" if papers is None else f"{papers[0]:.1f} ± {papers[1]:.1f}"


def above(ours: Summary, twin: Summary) -> str:
    """Write our mean minus a float twin's, ± its standard error."""
    points, error = ours.minus(twin)
    return f"{points:+.2f}" + ("" if error is None else f" ± {error:.2f}")
