"""One process that exchanges rows with itself, over NCCL on a GPU and over gloo on the CPU.

    python benchmarks/nccl.py --device cuda

NCCL takes one process per GPU. To see it carry rows where there is one GPU, some edges of a graph
read copies of their sources, which go through the all-to-all of a world of one and come back.
Gradients, trained models and predictions must be those of the plain graph; it ends with status 1
where they are not.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from datetime import timedelta

import numpy as np
import torch
from torch._C._distributed_c10d import HashStore

import bignn
from bignn.config import Settings
from bignn.nn import GNN
from bignn.nn import gcn_conv as conv_module
from bignn.nn.saved_bits.plain import PlainBitKernels
from bignn.runtime.parts.graph_part import GraphPart, cut
from bignn.runtime.parts.part_run import PartRun
from bignn.train.distributed import World, current_world, leave
from bignn.train.fit import fit
from bignn.train.parts.halo import HaloExchange
from bignn.train.parts.part_problem import PartProblem

CONVS = ("gcn", "sage", "gat")


def mirrored(part: GraphPart) -> GraphPart:
    """Let the lower half of a part's nodes read the upper half through the exchange."""
    half = part.num_nodes // 2
    target = np.repeat(np.arange(part.num_nodes), np.diff(part.offsets))
    crosses = (target < half) & (part.ids >= half)
    halo = np.unique(part.ids[crosses]).astype(np.int64)
    ids = part.ids.copy()
    ids[crosses] = part.num_nodes + np.searchsorted(halo, ids[crosses])
    ends = np.array([0, len(halo)])
    return replace(part, halo=halo, halo_offsets=ends, sent=halo, sent_offsets=ends, ids=ids)


def model_for(part: GraphPart, conv: str, *, binary: bool = True) -> GNN:
    """Make a model without random numbers."""
    torch.manual_seed(0)
    sizes = part.partition.num_features, 64, 2, part.partition.num_classes
    heads = 4 if conv == "gat" else 1
    binarize = "both" if binary else "none"
    return GNN(*sizes, conv=conv, heads=heads, binarize=binarize, norm="batch")  # type: ignore[arg-type]


def step(model: GNN, part: GraphPart, world: World, device: torch.device) -> list[torch.Tensor]:
    """Compute logits and gradients of a training step."""
    problem = PartProblem(part, None, device)
    model.to(device)
    problem.prepare(model, Settings(), world)
    problem.fit_input(model)
    batch = problem.trial()
    model.train()
    out = batch.logits(model)
    torch.nn.functional.cross_entropy(out, batch.y).backward()
    return [out.detach(), *(p.grad for p in model.parameters() if p.grad is not None)]


def join(device: torch.device) -> World:
    """Connect this process with itself as ``torchrun`` would connect several."""
    backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    store = HashStore()
    torch.distributed.init_process_group(
        backend, store=store, rank=0, world_size=1, timeout=timedelta(seconds=60)
    )
    return current_world(device)


def main(arguments: list[str] | None = None) -> int:
    """Compare all, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--dataset", default="cora")
    parser.add_argument("--epochs", type=int, default=20)
    options = parser.parse_args(arguments)
    device = torch.device("cuda", 0) if options.device == "cuda" else torch.device("cpu")
    graph = bignn.load(options.dataset)
    whole = next(cut(graph, 1))
    part = mirrored(whole)
    world = join(device)
    wrong = 0
    if device.type == "cpu":  # whole graphs train on bits there too, as they do on a GPU
        vars(conv_module)["kernels_for"] = lambda device: PlainBitKernels()
    try:
        group = torch.distributed.group.WORLD
        assert group is not None
        carrier = group._get_backend(device).name()
        print(f"{device.type} tensors go by {carrier}, {part.num_halo:,} rows to itself")
        wrong += carrier != ("nccl" if device.type == "cuda" else "gloo")
        for conv, binary in [*((conv, True) for conv in CONVS), ("gcn", False)]:
            name = f"{'binary' if binary else 'float'} {conv}"
            alone = step(model_for(whole, conv, binary=binary), whole, World(), device)
            found = step(model_for(whole, conv, binary=binary), part, world, device)
            pairs = zip(found, alone, strict=True)
            error = max(float((f - a).abs().max() / a.abs().max().clamp(min=1)) for f, a in pairs)
            wrong += not error <= 1e-4
            print(f"{name}: a step's logits and gradients differ by {error:.1e} at most")
        settings = Settings(lr=0.01, epochs=options.epochs, patience=options.epochs)
        for gradients in ("float", "int8"):
            model = model_for(whole, "gcn")
            result = fit(model, part, settings, device=options.device, progress=False,
                         halo_gradients=gradients)  # fmt: skip
            sent = result.exchanged
            assert sent is not None
            wrong += not sent["backward_bytes"] > 0
            print(f"trained with {gradients} gradients: validation {result.val_acc:.1f} %, {sent}")
        packed = bignn.pack(model.cpu().eval())
        run = PartRun(packed.network, part, exchange := HaloExchange(world, part))
        count = int((run.classes() != packed.predict(graph)).sum())
        wrong += bool(count) or not exchange.forward.sent
        print(f"predicted in parts: {count} of {graph.num_nodes:,} nodes differ, "
              f"{exchange.forward.sent:,} bytes by gloo")  # fmt: skip
    finally:
        leave()
    print("all equal" if not wrong else f"{wrong} of these are wrong")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
