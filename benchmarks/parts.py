"""Graphs in parts: predictions of several processes beside one's, and the bytes they exchange.

    torchrun --nproc-per-node 4 benchmarks/parts.py cora pubmed amazon-computers arxiv-shaped
    torchrun --nproc-per-node 4 benchmarks/parts.py reddit-columns arxiv-columns

Every graph is cut into as many parts as there are processes, by METIS and by ranges, and predicted
with briefly trained binary GCN, GraphSAGE and GAT models. A graph is a dataset's name, a .npz file
or a random one, whose models have random weights: "arxiv-shaped" is of ogbn-arxiv's size,
"reddit-columns" and "arxiv-columns" have 20,000 nodes with 602 and 128 features, read as their
signs. Bytes are those that the processes sent; the last columns are how many times as many the same
rows have as float32, in all and before each layer. Dense features are encoded in several bits each
(``input_bits``), so that the first layer of "arxiv-shaped" gains less.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

import bignn
from bignn.graph import Graph
from bignn.lab.bench.shapes import SHAPES, skewed_graph
from bignn.runtime.parts.part_files import write_parts
from bignn.train.distributed import World, joined_world
from bignn.train.parts.predict_parts import predict_parts
from bignn.train.recipes import recipe

EPOCHS = 10
#: Random graphs: whose features they have, and nodes, None for as many as that one.
RANDOM: dict[str, tuple[str, int | None]] = {
    "arxiv-shaped": ("arxiv", None),
    "reddit-columns": ("reddit", 20_000),
    "arxiv-columns": ("arxiv", 20_000),
}


def graph_of(name: str) -> Graph:
    """Load a graph, or make a random one."""
    if name not in RANDOM:
        return bignn.load(name)
    kind, num_nodes = RANDOM[name]
    shape, rng = SHAPES[kind], np.random.default_rng(0)
    count, like = num_nodes or shape.num_nodes, SHAPES["arxiv"]
    offsets, source = skewed_graph(count, count * like.num_edges // like.num_nodes, rng)
    target = np.repeat(np.arange(count), np.diff(offsets))
    x = rng.standard_normal((count, shape.sizes[0]), dtype=np.float32)
    y = rng.integers(0, shape.sizes[-1], count)
    idx = np.arange(count)
    edges = np.stack([source.astype(np.int64), target])
    return Graph(x, edges, None, y, idx[:9], idx[9:18], name=name)


def model_of(name: str, graph: Graph) -> bignn.PackedModel:
    """Make a packed model of a graph; trained for a few epochs, unless the graph is random."""
    torch.manual_seed(0)
    options: dict[str, Any] = {"hidden_channels": 8 if name == "bi-gat" else 128, "sampler": "none"}
    if graph.name in RANDOM and RANDOM[graph.name][1] is not None:
        options["input_bits"] = "sign"
    chosen = recipe(name, graph=graph, epochs=EPOCHS, inductive=False, **options)
    model = chosen.build(graph)
    if graph.name in RANDOM:
        model.fit_input(torch.from_numpy(graph.dense_x()))
    else:
        bignn.fit(model, graph, chosen.settings, progress=False)
    return bignn.pack(model.eval())


def compare(given: str, world: World, folder: Path) -> None:
    """Predict one graph with every model and cut, and print a line for each."""
    graph, name = graph_of(given), Path(given).stem
    expected = {}
    for model in ("bi-gcn", "bi-sage", "bi-gat"):
        packed = model_of(model, graph)  # by all processes together
        if world.is_leader:
            packed.save(folder / f"{name}-{model}.bignn")
            expected[model] = packed.predict(graph)
    for by in ("metis", "ranges"):
        if world.is_leader:
            write_parts(graph, world.size, folder / by, by)
        world.barrier()
        for model in ("bi-gcn", "bi-sage", "bi-gat"):
            out = str(folder / "out.npy")
            path = folder / f"{name}-{model}.bignn"
            report = predict_parts(str(path), str(folder / by), world, out=out)
            if not world.is_leader:
                continue
            differ = int((np.load(out) != expected[model]).sum())
            sent, floats = report["exchange"]["bytes"], report["exchange"]["float32_bytes"]
            layers = report["exchange"]["layers"]
            ratios = [some["float32_bytes"] / some["bytes"] for some in layers if some["bytes"]]
            columns = [f"{some['columns']} columns" for some in layers]
            each = ", ".join(
                f"{of} {ratio:.1f}x" for of, ratio in zip(columns, ratios, strict=False)
            )
            ratio = f"{floats / sent:.1f}x ({each})" if sent else ""
            print(f"{name:<18}{model:<9}{world.size:>3} parts {by:<8}{differ:>4} nodes differ"
                  f"{sent:>14,} bytes{floats:>15,} as float32 {ratio}", flush=True)  # fmt: skip


def main() -> None:
    """Compare all graphs that are asked for."""
    torch.set_num_threads(1)
    with joined_world("cpu") as world, tempfile.TemporaryDirectory() as own:
        # All processes of this machine use the leader's folder.
        text = [own if world.is_leader else ""]
        if world.size > 1:
            torch.distributed.broadcast_object_list(text)
        for name in sys.argv[1:] or ["cora"]:
            compare(name, world, Path(text[0]))


if __name__ == "__main__":
    main()
