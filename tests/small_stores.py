"""Small stores and the same graphs in memory, for tests."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import bignn
from bignn.graph.published_sizes import PublishedSizes
from bignn.nn import GNN
from bignn.runtime.store import Store, synthetic
from bignn.runtime.store.synthetic import SyntheticRows, write_synthetic

SHAPE = PublishedSizes(700, 6000, 70, 5, 200, 100, 100)


def make_store(folder: Path, seed: int = 0) -> Store:
    """A synthetic store of :data:`SHAPE`, made of many small blocks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(synthetic.SHAPES, "small", SHAPE)
        patch.setattr(synthetic, "_BLOCK_ROWS", 64)
        write_synthetic("small", folder, seed=seed, progress=False)
    return Store(folder, verify=True)


def in_memory(store: Store, seed: int = 0) -> bignn.Graph:
    """The graph of :func:`make_store` with raw features."""
    rows = SyntheticRows(SHAPE, seed)
    target = np.repeat(np.arange(store.num_nodes), np.diff(store.offsets))
    edge_index = np.stack([store.ids.astype(np.int64), target])
    splits: dict[str, Any] = rows.splits()
    y = rows.classes(0, SHAPE.nodes).astype(np.int64)
    return bignn.Graph(rows.features(0, SHAPE.nodes), edge_index, y=y, **splits, name="small")


def packed_model(store: Store, conv: str, *, num_layers: int = 3, **options: Any) -> Any:
    """An untrained model with the store's input stage, packed."""
    torch.manual_seed(1)
    chosen: Any = {"conv": conv, "heads": 2 if conv == "gat" else 1, **options}
    sizes = store.num_features, 33, num_layers, store.num_classes
    model = GNN(*sizes, binarize="both", norm="batch", **chosen)
    model.load_input_stage(store.stage)
    return bignn.pack(model.eval())


def file_bytes(folder: Path) -> dict[str, bytes]:
    """Contents of all files that are not locks."""
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.is_file() and not path.name.startswith(".")
    }


def dense_features(num_rows: int, num_columns: int, seed: int = 0) -> NDArray[np.float32]:
    rng = np.random.default_rng(seed)
    scale = rng.uniform(0.1, 30, num_columns)
    made: NDArray[np.float32] = (
        rng.standard_normal((num_rows, num_columns)) * scale + 5 * scale
    ).astype(np.float32)
    return made
