"""The published sizes of the datasets known by name. Data alone, no code; imports nothing of ours.

``edges`` counts undirected edges as the publishers store them, so duplicates and self-loops of the
raw files are in it: a loaded graph, which has every pair once in both directions, can have fewer
than ``2 * edges`` columns. ``paper_nodes`` and ``paper_edges`` are the numbers in the paper's table
of datasets, which differ in three places: 19,711 nodes for PubMed (the published graph has
19,717), flickr's edges in both directions, and the edges of GraphSAINT's sparser reddit.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PublishedSizes:
    """Published sizes of a graph; ``train``, ``val`` and ``test`` count nodes."""

    nodes: int
    edges: int
    features: int
    classes: int
    train: int
    val: int
    test: int
    paper_nodes: int | None = None
    paper_edges: int | None = None


PUBLISHED_SIZES: dict[str, PublishedSizes] = {
    # The paper's seven, in the order of its table.
    "cora": PublishedSizes(2_708, 5_429, 1_433, 7, 140, 500, 1_000, 2_708, 5_429),
    "citeseer": PublishedSizes(3_327, 4_732, 3_703, 6, 120, 500, 1_000, 3_327, 4_732),
    "pubmed": PublishedSizes(19_717, 44_338, 500, 3, 60, 500, 1_000, 19_711, 44_338),
    "ogbn-arxiv": PublishedSizes(
        169_343, 1_166_243, 128, 40, 90_941, 29_799, 48_603, 169_343, 1_166_243
    ),
    "flickr": PublishedSizes(89_250, 449_878, 500, 7, 44_625, 22_312, 22_313, 89_250, 899_756),
    "reddit": PublishedSizes(
        232_965, 57_307_946, 602, 41, 153_431, 23_831, 55_703, 232_965, 11_606_919
    ),
    "ogbn-products": PublishedSizes(
        2_449_029, 61_859_140, 100, 47, 196_615, 39_323, 2_213_091, 2_449_029, 61_859_140
    ),
    # Mid-size graphs; their splits are ours (bignn.graph.split).
    "amazon-computers": PublishedSizes(13_752, 245_861, 767, 10, 8_251, 2_750, 2_751),
    "amazon-photo": PublishedSizes(7_650, 119_081, 745, 8, 4_590, 1_530, 1_530),
    "coauthor-cs": PublishedSizes(18_333, 81_894, 6_805, 15, 10_999, 3_667, 3_667),
    "coauthor-physics": PublishedSizes(34_493, 247_962, 8_415, 5, 20_695, 6_899, 6_899),
    "musae-github": PublishedSizes(37_700, 289_003, 4_005, 2, 18_850, 9_425, 9_425),
}
