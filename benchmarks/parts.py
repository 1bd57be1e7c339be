"""Graphs in parts: predictions of several processes beside one's, and the bytes they exchange.

    torchrun --nproc-per-node 4 benchmarks/parts.py cora pubmed amazon-computers arxiv-shaped

Every graph is cut into as many parts as there are processes, by METIS and by ranges, and predicted
with briefly trained binary GCN, GraphSAGE and GAT models; "arxiv-shaped" is a random graph of
ogbn-arxiv's size whose models have random weights. The last columns are of the whole exchange.
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


def graph_of(name: str) -> Graph:
    """Load a graph, or make the random one."""
    if name != "arxiv-shaped":
        return bignn.load(name)
    shape, rng = SHAPES["arxiv"], np.random.default_rng(0)
    offsets, source = skewed_graph(shape.num_nodes, shape.num_edges, rng)
    target = np.repeat(np.arange(shape.num_nodes), np.diff(offsets))
    x = rng.standard_normal((shape.num_nodes, shape.sizes[0]), dtype=np.float32)
    y = rng.integers(0, shape.sizes[-1], shape.num_nodes)
    idx = np.arange(shape.num_nodes)
    edges = np.stack([source.astype(np.int64), target])
    return Graph(x, edges, None, y, idx[:9], idx[9:18], name=name)


def model_of(name: str, graph: Graph) -> bignn.PackedModel:
    """Make a packed model of a graph; trained for a few epochs, unless the graph is random."""
    torch.manual_seed(0)
    wide: dict[str, Any] = {"hidden_channels": 8 if name == "bi-gat" else 128, "sampler": "none"}
    chosen = recipe(name, graph=graph, epochs=EPOCHS, inductive=False, **wide)
    model = chosen.build(graph)
    if graph.name == "arxiv-shaped":
        model.fit_input(torch.from_numpy(graph.dense_x()))
    else:
        bignn.fit(model, graph, chosen.settings, progress=False)
    return bignn.pack(model.eval())


def compare(name: str, world: World, folder: Path) -> None:
    """Predict one graph with every model and cut, and print a line for each."""
    graph = graph_of(name)
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
            ratio = f"{floats / sent:.1f}x" if sent else ""
            print(f"{name:<18}{model:<9}{world.size:>3} parts {by:<8}{differ:>4} nodes differ"
                  f"{sent:>14,} bytes{floats:>15,} as float32 {ratio:>6}", flush=True)  # fmt: skip


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
