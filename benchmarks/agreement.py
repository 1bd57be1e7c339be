"""Do packed predictions equal those of the trained torch model, on every node, for several seeds?

Run: .venv/bin/python benchmarks/agreement.py [GRAPH ...] [--model bi-gcn] [--seeds 5] [--distill]
     [--jobs 1] [--epochs N] [--edge-bits none] [--device cuda]   (trains, minutes)
Also counts the hidden bits that differ from torch's: with rounded weights none should, with float
ones (``--edge-bits none``) torch's float32 sums round differently. With ``--device cuda`` models
are trained on the GPU, and the packed ones predict there too: nodes whose class is not the CPU
engine's are counted.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from bignn.cli.recipe_flags import add_recipe_flags
from bignn.graph import EMBEDDED, load
from bignn.lab.bench.problems import EdgeBits
from bignn.lab.bench.suites import prefix
from bignn.packing import pack
from bignn.runtime import pack_graph
from bignn.train.checkpoint import load_model
from bignn.train.recipes import recipe, teacher_recipe
from bignn.train.seeds import train_seeds, train_teachers


def compare(
    dataset: str,
    name: str,
    seeds: range,
    folder: Path,
    *,
    distill: bool,
    jobs: int,
    epochs: int | None,
    edge_bits: EdgeBits,
    device: str,
) -> None:
    """Print a line per seed."""
    graph = load(dataset)
    x, edges = torch.from_numpy(graph.dense_x()), torch.from_numpy(graph.edge_index)
    teachers = None
    if distill:
        teacher = teacher_recipe(name, graph, epochs=epochs)
        _, teachers = train_teachers(
            teacher, graph, seeds, 1, folder / "teachers", jobs=jobs, device=device
        )
    chosen = recipe(name, graph=graph, distill=distill, epochs=epochs, edge_bits=edge_bits)
    trained = train_seeds(chosen, graph, seeds, folder, teachers=teachers, jobs=jobs, device=device)
    for seed, checkpoint in zip(trained.seeds, trained.checkpoints, strict=True):
        model = load_model(checkpoint)
        packed = pack(model)
        packed_graph = pack_graph(graph, like=packed)
        classes = packed.predict(packed_graph)
        differ = int((classes != model.predict(x, edges).numpy()).sum())
        with torch.no_grad():
            hidden = model.norms[0](model.layers[0](model.input_stage(x), edges)).numpy()
        ours = prefix(packed, 1).predict(packed_graph, output="logits")
        flips = int(((ours >= 0) != (hidden >= 0)).sum())
        line = (
            f"{name} on {graph.name} seed {seed}: {differ} of {graph.num_nodes} nodes differ, "
            f"{flips} of {hidden.size} hidden bits differ"
        )
        if device != "cpu":
            elsewhere = int((packed.predict(packed_graph, device=device) != classes).sum())
            line += f", {elsewhere} nodes differ on {device}"
        print(line, flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("graphs", nargs="*", default=EMBEDDED)
    parser.add_argument("--model", default="bi-gcn")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--distill", action="store_true")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="where models are trained, and run too")
    add_recipe_flags(parser, ["edge_bits"])
    options = parser.parse_args()
    with TemporaryDirectory() as runs:
        for graph in options.graphs:
            compare(
                graph,
                options.model,
                range(options.seeds),
                Path(runs) / Path(graph).stem,
                distill=options.distill,
                jobs=options.jobs,
                epochs=options.epochs,
                edge_bits=options.edge_bits,
                device=options.device,
            )
