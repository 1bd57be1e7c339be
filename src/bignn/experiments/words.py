"""How names and numbers are written."""

from __future__ import annotations

from bignn.experiments.results import Summary

NOT_MEASURED = "not measured here"
NAMES = {
    **{"gcn": "GCN", "gat": "GAT", "sgc": "SGC", "fastgcn": "FastGCN", "sage": "GraphSAGE"},
    **{"saint": "GraphSAINT", "bi-gcn": "Bi-GCN", "bi-gcn-f": "Bi-GCN-F", "bi-gcn-w": "Bi-GCN-W"},
    **{"bi-gat": "Bi-GAT", "bi-sage": "Bi-GraphSAGE", "bi-saint": "Bi-GraphSAINT"},
    **{"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed", "reddit": "Reddit"},
    **{"flickr": "Flickr", "ogbn-arxiv": "OGBN-Arxiv", "ogbn-products": "OGBN-Products"},
}
#: The synthetic graph of a dataset's sizes that ``bignn bench`` measures.
SHAPE_OF = {"reddit": "reddit", "flickr": "flickr", "ogbn-arxiv": "arxiv"} | {
    "ogbn-products": "products"
}


def name_of(word: str) -> str:
    """How a dataset or model is written."""
    return NAMES.get(word, word)


def kib(size: float) -> str:
    """Bytes as the paper prints model sizes."""
    return f"{size / 1024:,.2f}K"


def mib(size: float) -> str:
    """Bytes as the paper prints data sizes."""
    return f"{size / 1024**2:,.2f}M"


def ms(value: float | None) -> str:
    """Milliseconds."""
    return "" if value is None else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def times(value: float | None) -> str:
    """A ratio."""
    return "" if value is None else f"{value:.1f}x"


def accuracy(summary: Summary | None) -> str:
    """Mean ± standard deviation."""
    return NOT_MEASURED if summary is None else summary.told()


def difference(ours: Summary | None, papers: tuple[float, float] | None) -> str:
    """Ours minus the paper's."""
    return "" if ours is None or papers is None else f"{ours.mean - papers[0]:+.1f}"


def published(papers: tuple[float, float] | None) -> str:
    """The paper's mean ± standard deviation."""
    return "" if papers is None else f"{papers[0]:.1f} ± {papers[1]:.1f}"


def operations(count: float) -> str:
    """Cycle operations as the paper prints them, as ``4.67e6``."""
    mantissa, _, exponent = f"{count:.2e}".partition("e")
    return f"{mantissa}e{int(exponent)}"
