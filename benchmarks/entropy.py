"""How do the bits of a hidden layer depend on the number of bins, the nodes and the estimate?

Run: .venv/bin/python benchmarks/entropy.py [GRAPH ...] [--model gcn] [--hidden 16] [--seed 0]
     [--ours]   (trains one model per graph, seconds to a minute)
Trains as the paper does (Sec. 7.2) unless told --ours, takes the hidden layer with the most bits,
and prints a table: plain counts as in the paper, corrected (Miller-Madow), with a bootstrap
interval over nodes, and the two estimates that do not take neurons for independent.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from bignn.capacity import entropy
from bignn.capacity.binning import bootstrap, dependence
from bignn.capacity.layers import visit_layers
from bignn.capacity.width import estimate_bits
from bignn.graph import EMBEDDED, Graph, load
from bignn.lab.paper.rows import AS_PAPER_FLOAT
from bignn.train.fit import fit
from bignn.train.recipes import recipe

BINS = (20, 50, 100, 200, 500, 1000, 2000)
#: Shares of the nodes.
PARTS = (1 / 64, 1 / 16, 1 / 4, 1.0)


def hidden_layer(graph: Graph, model: str, hidden: int, seed: int, ours: bool) -> NDArray[Any]:
    """Return the hidden layer with the most bits of a trained model, [N, d]."""
    chosen = recipe(
        model, graph=graph, hidden_channels=hidden, **({} if ours else dict(AS_PAPER_FLOAT))
    )
    torch.manual_seed(seed)
    trained = chosen.build(graph)
    result = fit(trained, graph, chosen.settings, seed=seed)
    layers: list[NDArray[Any]] = []
    visit_layers(
        trained, graph, lambda name, h: layers.append(h) if name.startswith("hidden") else None
    )
    best = max(layers, key=lambda h: float(entropy(h).sum()))
    zeros = 100 * float((best == 0).mean())
    print(
        f"\n{model} on {graph.name}, {best.shape[1]} hidden, test accuracy {result.test_acc:.1f} %;"
        f" {zeros:.0f} % of the values are 0"
    )
    return best


def table(values: NDArray[Any]) -> None:
    """Every number of bins with every number of nodes."""
    print(
        f"{'bins':>6}{'nodes':>8}{'bits':>9}{'corrected':>11}{'interval':>18}{'copula':>9}{'rate':>9}"
    )
    sizes = sorted({max(2, round(part * len(values))) for part in PARTS})
    order = np.random.default_rng(0).permutation(len(values))
    for row in dependence(values, BINS, sizes):
        some = values[np.sort(order[: row.samples])]
        sure = bootstrap(some, row.bins)
        others = "".join(f"{estimate_bits(some, n, row.bins):>9.1f}" for n in ("copula", "rate"))
        interval = f"{sure.low:.1f} to {sure.high:.1f}"
        print(
            f"{row.bins:>6}{row.samples:>8}{row.bits:>9.1f}{row.corrected_bits:>11.1f}"
            f"{interval:>18}{others}",
            flush=True,
        )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("graphs", nargs="*", default=EMBEDDED)
    parser.add_argument("--model", default="gcn")
    parser.add_argument("--hidden", type=int, default=16)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--ours", action="store_true")
    options = parser.parse_args()
    for name in options.graphs:
        layer = hidden_layer(load(name), options.model, options.hidden, options.seed, options.ours)
        table(layer)
