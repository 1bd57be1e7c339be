"""Writes names and numbers."""

from __future__ import annotations

NAMES = {
    **{"gcn": "GCN", "gat": "GAT", "sgc": "SGC", "fastgcn": "FastGCN", "sage": "GraphSAGE"},
    **{"saint": "GraphSAINT", "bi-gcn": "Bi-GCN", "bi-gcn-f": "Bi-GCN-F", "bi-gcn-w": "Bi-GCN-W"},
    **{"bi-gat": "Bi-GAT", "bi-sage": "Bi-GraphSAGE", "bi-saint": "Bi-GraphSAINT"},
    **{"cora": "Cora", "citeseer": "CiteSeer", "pubmed": "PubMed", "reddit": "Reddit"},
    **{"flickr": "Flickr", "ogbn-arxiv": "OGBN-Arxiv", "ogbn-products": "OGBN-Products"},
}


def name_of(word: str) -> str:
    """Return the name of a dataset or model as it is printed."""
    return NAMES.get(word, word)


def kib(size: float) -> str:
    """Write bytes as the paper prints model sizes."""
    return f"{size / 1024:,.2f}K"


def mib(size: float) -> str:
    """Write bytes as the paper prints data sizes."""
    return f"{size / 1024**2:,.2f}M"


def ms(value: float | None) -> str:
    """Write milliseconds."""
    return "" if value is None else f"{value:,.2f}" if value < 100 else f"{value:,.0f}"


def times(value: float | None) -> str:
    """Write a ratio."""
    return "" if value is None else f"{value:.1f}x"


def operations(count: float) -> str:
    """Write cycle operations as the paper prints them, as ``4.67e6``."""
    mantissa, _, exponent = f"{count:.2e}".partition("e")
    return f"{mantissa}e{int(exponent)}"
