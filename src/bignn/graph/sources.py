"""Where the datasets known by name come from: their raw files, where to look, who reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from bignn.graph.readers import flickr, musae, ogb, reddit, shchur

_SHCHUR = "https://github.com/shchur/gnn-benchmark/raw/master/data/npz/"
_SHCHUR_PAGE = "https://github.com/shchur/gnn-benchmark"


@dataclass(frozen=True)
class Source:
    """Published raw files of a dataset.

    Attributes:
        read: makes the arrays of the .npz format from the folder of ``files``, or from the file if
            there is but one.
        files: their paths in that folder.
        folders: where that folder may be, below the data folder: ours first, where downloads go,
            then those of PyG's and OGB's own loaders.
        page: where they are published, for people.
        url: https address of the single file, or of a .zip that holds all.
        limit: bytes a download may have at most, far above what is published.
        cached: whether reading takes so long that the result is kept beside the files.

    """

    read: Callable[[Path], dict[str, NDArray[Any]]]
    files: tuple[str, ...]
    folders: tuple[str, ...]
    page: str
    url: str
    limit: int = 1 << 30
    cached: bool = False


def _shchur(name: str, file: str, *folders: str) -> tuple[Source, ...]:
    return (
        Source(
            read=shchur.read,
            files=(file,),
            folders=(name, f"{name}/raw", *folders, "."),
            page=_SHCHUR_PAGE,
            url=_SHCHUR + file,
        ),
    )


#: By name; of several sources the first whose files are there is read, and the first is downloaded.
SOURCES: dict[str, tuple[Source, ...]] = {
    "ogbn-arxiv": (
        Source(
            read=ogb.read_arxiv,
            files=ogb.ARXIV,
            folders=("ogbn-arxiv", "ogbn_arxiv", "arxiv"),
            page="https://ogb.stanford.edu/docs/nodeprop/",
            url="https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip",
            cached=True,
        ),
    ),
    "flickr": (
        Source(
            read=flickr.read,
            files=flickr.FILES,
            folders=("flickr", "flickr/raw", "Flickr/raw", "Flickr"),
            page="https://github.com/GraphSAINT/GraphSAINT",
            url="https://data.dgl.ai/dataset/flickr.zip",
        ),
    ),
    "reddit": (
        Source(
            read=reddit.read,
            files=reddit.FILES,
            folders=("reddit", "reddit/raw", "Reddit/raw", "Reddit"),
            page="https://snap.stanford.edu/graphsage/",
            url="https://data.dgl.ai/dataset/reddit.zip",
            limit=1 << 32,
        ),
    ),
    "ogbn-products": (
        Source(
            read=ogb.read_products,
            files=ogb.PRODUCTS,
            folders=("ogbn-products", "ogbn_products", "products"),
            page="https://ogb.stanford.edu/docs/nodeprop/",
            url="https://snap.stanford.edu/ogb/data/nodeproppred/products.zip",
            limit=1 << 32,
            cached=True,
        ),
    ),
    "amazon-computers": _shchur(
        "amazon-computers",
        "amazon_electronics_computers.npz",
        *("Amazon/Computers/raw", "Computers/raw"),
    ),
    "amazon-photo": _shchur(
        "amazon-photo", "amazon_electronics_photo.npz", "Amazon/Photo/raw", "Photo/raw"
    ),
    "coauthor-cs": _shchur("coauthor-cs", "ms_academic_cs.npz", "Coauthor/CS/raw", "CS/raw"),
    "coauthor-physics": _shchur(
        "coauthor-physics", "ms_academic_phy.npz", "Coauthor/Physics/raw", "Physics/raw"
    ),
    "musae-github": (
        Source(
            read=musae.read,
            files=musae.FILES,
            folders=("musae-github", "git_web_ml", "musae-github/git_web_ml"),
            page="https://snap.stanford.edu/data/github-social.html",
            url="https://snap.stanford.edu/data/git_web_ml.zip",
        ),
        Source(
            read=musae.read_reduced,
            files=("github.npz",),
            folders=("musae-github", "musae-github/raw", "GitHub/raw"),
            page="https://github.com/benedekrozemberczki/MUSAE",
            url="https://graphmining.ai/datasets/ptg/github.npz",
        ),
    ),
}
