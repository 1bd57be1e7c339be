"""Does the entropy of dense features explain how many input bits a binary model needs?

Run: .venv/bin/python benchmarks/input_entropy.py [GRAPH ...] [--model bi-gcn] [--seeds 2]
     [--device cuda] [--jobs 4] [--out runs/dense]   (trains; minutes on a GPU)
benchmarks/dense_graphs.py makes such graphs. For each graph: the bits of its features by the
estimates of ``bignn.capacity`` with 200 bins, and validation accuracy of the distilled model with 1
to 64 rotations; the fewest that reach 99 % of the best are the bits that it needs, as the paper
defines proper widths. Runs are kept in the folder, and finished ones are not run again.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

from dense_trials import GRAPHS

import bignn
from bignn.capacity.width import ESTIMATES, estimate_bits
from bignn.lab.paper.width import PROPER
from bignn.lab.study.run import Run
from bignn.lab.study.runs import do_runs

#: Rotations that are tried, up to so many bits in all.
ROTATIONS = (1, 2, 4, 8, 16, 32, 64)
MOST_BITS = 2048


def rows_of(graph: str, model: str, num_features: int) -> dict[int, Run]:
    """Return the runs of a graph with seed 0, by the number of input bits."""
    return {
        count * num_features: Run(
            graph, model, distill=True, changes=(("input_bits", f"rotate:{count}"),)
        )
        for count in ROTATIONS
        if count * num_features <= MOST_BITS
    }


def main() -> None:
    """Train all rows and print bits beside accuracies."""
    parser = argparse.ArgumentParser()
    parser.add_argument("graphs", nargs="*", default=[*GRAPHS, "blocks-8"])
    parser.add_argument("--model", default="bi-gcn", choices=("bi-gcn", "bi-sage"))
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("runs/dense"))
    options = parser.parse_args()
    print("| graph | " + " | ".join(ESTIMATES) + " | needed | validation % by input bits |")
    print("|---" * (len(ESTIMATES) + 3) + "|")
    for name in options.graphs:
        graph = bignn.load(name)
        rows = rows_of(name, options.model, graph.num_features)
        runs = [replace(row, seed=seed) for row in rows.values() for seed in range(options.seeds)]
        records = do_runs(runs, options.out, device=options.device, jobs=options.jobs)
        accuracy = {
            bits: sum(r["val_acc"] for r in records[n * options.seeds :][: options.seeds])
            / options.seeds
            for n, bits in enumerate(rows)
        }
        needed = next(b for b, a in accuracy.items() if a >= PROPER * max(accuracy.values()))
        bits = [f"{estimate_bits(graph.dense_x(), estimate):.0f}" for estimate in ESTIMATES]
        shown = ", ".join(f"{count}: {found:.1f}" for count, found in accuracy.items())
        print(f"| {name} | " + " | ".join(bits) + f" | {needed} | {shown} |")


if __name__ == "__main__":
    main()
