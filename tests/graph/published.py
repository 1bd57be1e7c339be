"""Small graphs written in exactly the formats the datasets are published in."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
from conftest import Arrays
from numpy.typing import NDArray


def savez(file: Path, **arrays: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    np.savez(file, **arrays)


def csr(arrays: Arrays, prefix: str = "") -> dict[str, Any]:
    """The adjacency as scipy saves a CSR matrix (edge_index is sorted by source)."""
    source, target = arrays["edge_index"]
    num_nodes = len(arrays["x"])
    return {
        f"{prefix}data": np.ones(source.size),
        f"{prefix}indices": target.astype(np.int32),
        f"{prefix}indptr": np.searchsorted(source, np.arange(num_nodes + 1)).astype(np.int32),
        f"{prefix}shape": np.array([num_nodes, num_nodes]),
    }


def write_flickr(folder: Path, arrays: Arrays) -> None:
    savez(folder / "adj_full.npz", **csr(arrays), format=np.array(b"csr"))
    np.save(folder / "feats.npy", arrays["x"].astype(np.float64))
    classes = {str(node): int(label) for node, label in enumerate(arrays["y"])}
    (folder / "class_map.json").write_text(json.dumps(classes))
    keys = {"tr": "train_idx", "va": "val_idx", "te": "test_idx"}
    role = {part: arrays[key].tolist() for part, key in keys.items()}
    (folder / "role.json").write_text(json.dumps(role))


def write_reddit(folder: Path, arrays: Arrays) -> None:
    types = np.zeros(len(arrays["x"]), dtype=np.int64)
    for number, key in enumerate(("train_idx", "val_idx", "test_idx")):
        types[arrays[key]] = number + 1
    names = np.array([f"t3_{node}" for node in range(len(types))])
    data = {"feature": arrays["x"], "label": arrays["y"], "node_types": types}
    savez(folder / "reddit_data.npz", **data, node_ids=names)
    source, target = arrays["edge_index"]
    order = np.random.default_rng(0).permutation(source.size)
    savez(
        folder / "reddit_graph.npz",
        row=source[order].astype(np.int32),
        col=target[order].astype(np.int32),
        data=np.ones(source.size),
        shape=np.array([len(types), len(types)]),
        format=np.array(b"coo"),
    )


def write_csv_gz(file: Path, table: NDArray[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = (",".join(map(repr, row)) for row in table.tolist())
    file.write_bytes(gzip.compress(("\n".join(lines) + "\n").encode()))


def write_ogb(folder: Path, arrays: Arrays, split: str) -> None:
    once = arrays["edge_index"][:, arrays["edge_index"][0] < arrays["edge_index"][1]]
    raw = folder / "raw"
    write_csv_gz(raw / "edge.csv.gz", once.T)
    write_csv_gz(raw / "node-feat.csv.gz", arrays["x"])
    write_csv_gz(raw / "node-label.csv.gz", arrays["y"][:, None])
    write_csv_gz(raw / "num-node-list.csv.gz", np.array([[len(arrays["x"])]]))
    write_csv_gz(raw / "num-edge-list.csv.gz", np.array([[once.shape[1]]]))
    for part, key in (("train", "train_idx"), ("valid", "val_idx"), ("test", "test_idx")):
        write_csv_gz(folder / "split" / split / f"{part}.csv.gz", arrays[key][:, None])


def write_arxiv(folder: Path, arrays: Arrays) -> None:
    write_ogb(folder, arrays, "time")


def write_products(folder: Path, arrays: Arrays) -> None:
    write_ogb(folder, arrays, "sales_ranking")


def write_shchur(file: Path, arrays: Arrays) -> None:
    rows, columns = np.nonzero(arrays["x"])
    loops = np.arange(3)  # the published Amazon graphs have self-loops and single directions
    one_way = arrays["edge_index"][:, arrays["edge_index"][0] < arrays["edge_index"][1]]
    both = np.concatenate([one_way, [loops, loops]], axis=1)
    pairs = both[:, np.lexsort(both[::-1])]
    savez(
        file,
        **csr(arrays | {"edge_index": pairs}, "adj_"),
        attr_data=arrays["x"][rows, columns],
        attr_indices=columns.astype(np.int32),
        attr_indptr=np.searchsorted(rows, np.arange(len(arrays["x"]) + 1)),
        attr_shape=np.array(arrays["x"].shape),
        labels=arrays["y"],
        attr_names=np.array(["word", None], dtype=object),
    )


def write_musae(folder: Path, arrays: Arrays) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    words = {str(node): np.flatnonzero(row).tolist() for node, row in enumerate(arrays["x"])}
    (folder / "musae_git_features.json").write_text(json.dumps(words))
    one_way = arrays["edge_index"][:, arrays["edge_index"][0] < arrays["edge_index"][1]].T
    edges = "".join(f"{a},{b}\n" for a, b in one_way.tolist())
    (folder / "musae_git_edges.csv").write_text("id_1,id_2\n" + edges)
    targets = "".join(
        f"{node},user{node},{label}\n" for node, label in reversed([*enumerate(arrays["y"])])
    )
    (folder / "musae_git_target.csv").write_text("id,name,ml_target\n" + targets)


def write_github(file: Path, arrays: Arrays) -> None:
    edges = arrays["edge_index"].T
    savez(file, edges=edges, features=arrays["x"], target=arrays["y"])
