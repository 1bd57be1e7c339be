"""A table of the datasets known by name: their raw files, folders, addresses and readers."""

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
    """The published raw files of a dataset.

    Attributes:
        read: reads the folder of ``files``, or the file if there is only one, and returns the
            arrays of the .npz format.
        files: paths of the files in that folder.
        folders: places of that folder below the data folder: first the one that downloads go to,
            then those of PyG's and OGB's own loaders.
        page: address of the page that describes the dataset.
        url: https address of the single file, or of a .zip that holds all.
        limit: the largest number of bytes that a download may have, far above what is published.
        cached: whether reading takes so long that the result is kept beside the files.
        sha256: digest of what is at ``url``, in hexadecimal; None where nobody has published one.

    """

    read: Callable[[Path], dict[str, NDArray[Any]]]
    files: tuple[str, ...]
    folders: tuple[str, ...]
    page: str
    url: str
    limit: int = 1 << 30
    cached: bool = False
    sha256: str | None = None


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


#: The sources of each dataset: the first whose files are there is read, the very first downloaded.
#: The publishers print no digests. Those below were each found in two or more independent public
#: repositories that pin the same address; where none was found, the first download is pinned.
SOURCES: dict[str, tuple[Source, ...]] = {
    "ogbn-arxiv": (
        Source(
            read=ogb.read_arxiv,
            files=ogb.ARXIV,
            folders=("ogbn-arxiv", "ogbn_arxiv", "arxiv"),
            page="https://ogb.stanford.edu/docs/nodeprop/",
            url="https://snap.stanford.edu/ogb/data/nodeproppred/arxiv.zip",
            cached=True,
            sha256="49f85c801589ecdcc52cfaca99693aaea7b8af16a9ac3f41dd85a5f3193fe276",
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
            sha256="9a16353c28f8ddd07148fc5ac9b57b818d7911ea0fbe9052d66d49fc32b372bf",
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
            sha256="5ea0a112edaec2141c0a2a612dd4aed58df97ff3e1ab1a0ca8238f43cbbb50a8",
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
            sha256="56c0c1c2c460dc4c7bf89357b1fec020f45e2ecebab81d131d073b10e28ec031",
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
