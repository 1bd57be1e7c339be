"""The rows of the suites as text, and as a figure of speedups. No torch."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bignn.lab.report.document import Figure, Series
from bignn.lab.report.figures import save
from bignn.lab.report.wording import name_of

Row = dict[str, Any]

HEADER = (
    f"{'graph':<15}{'plan':<6}{'packed':>10}{'best float':>11}{'PyG':>10}{'PyG CSR':>10}"
    f"{'simulated':>11}{'vs best':>9}{'vs PyG':>8}{'vs CSR':>8}{'MiB float':>11}"
    f"{'packed':>8}{'agree':>9}{'flips':>9}"
)

_BUSY = (
    "* other processes used the cores meanwhile, which slows torch's threads down more than ours:\n"
    "  neither medians nor bursts are reliable; measure again when the machine is idle."
)


def describe(report: dict[str, Any]) -> str:
    """Describe the rows as tables for a terminal."""
    rows = report["rows"]
    lines: list[str] = []
    products = [row for row in rows if row["suite"] == "gemm"]
    if products:
        lines += [
            f"XNOR product ({_sets(products[0])}), one thread, outputs preallocated",
            f"{'rows x inputs x outputs':<26}{'float32 ms':>12}{'packed ms':>11}{'GMAC/s':>9}"
            f"{'speedup':>9}",
        ]
        lines += [
            f"{row['shape']:<26}{row['best_float_ms']:>12.3f}{row['packed_ms']:>11.3f}"
            f"{row['gmacs']:>9.0f}{row['speedup_vs_best_float']:>8.1f}x"
            for row in products
        ]
    networks = [row for row in rows if row["suite"] != "gemm"]
    if networks:
        lines += [""] * bool(lines) + [
            f"{name_of(networks[0]['model'])} ({_sets(networks[0])}), {networks[0]['threads']} "
            "threads, median ms per prediction of all nodes",
            *([] if report["mkl"] is None else [f"MKL runs its code for {report['mkl']}."]),
            HEADER,
        ]
        lines += [network_line(row) for row in networks]
        lines += [
            "",
            "fastest burst of each against the fastest of ours, nearer to an idle machine:",
            *(f"  {row['shape']:<15}{_fastest(row)}" for row in networks),
            "",
            *([_BUSY, ""] if any(row["machine_was_busy"] for row in networks) else []),
            "best float: the fastest timed of PyG (edge_index), PyG (CSR) and torch by hand (CSR,",
            "cheaper order, preallocated). simulated: the binary model in floats.",
            "MiB: peak of features, weights and activations. agree: nodes whose class is torch's;",
            "flips: hidden bits that differ from torch's float32 sums.",
        ]
    return "\n".join(lines)


def _sets(row: Row) -> str:
    """Write what ours and torch ran on, and how many bits the edge weights of ours had."""
    bits = row["edge_bits"]
    weights = "" if bits is None else f", {'/'.join(map(str, sorted(set(bits))))}-bit edge weights"
    return f"ours on {row['backend']}{weights}; torch on {row['torch_capability']}"


def _fastest(row: Row) -> str:
    ratios = {"best float": "vs_best_float", "PyG": "vs_pyg"}
    found = ((label, row[f"fastest_speedup_{key}"]) for label, key in ratios.items())
    return ", ".join(f"{ratio:.1f}x {label}" for label, ratio in found if ratio is not None)


def network_line(row: Row) -> str:
    """Write a row below :data:`HEADER`."""

    def number(key: str, form: str) -> str:
        return "-" if row[key] is None else format(row[key], form)

    times = (number(key, ".2f") for key in ("pyg_ms", "pyg_sparse_ms", "simulated_ms"))
    pyg, csr, simulated = times
    ratios = [
        "-" if row[key] is None else f"{row[key]:.1f}x"
        for key in ("speedup_vs_best_float", "speedup_vs_pyg", "speedup_vs_pyg_sparse")
    ]
    return (
        f"{row['shape']:<15}{row['plan']:<6}{row['packed_ms']:>10.3f}"
        f"{number('best_float_ms', '.2f'):>11}{pyg:>10}{csr:>10}{simulated:>11}"
        f"{ratios[0]:>9}{ratios[1]:>8}{ratios[2]:>8}"
        f"{number('peak_mib_float', '.0f'):>11}{number('peak_mib_packed', '.1f'):>8}"
        f"{number('agreement', '.5f'):>9}{number('flipped_bits', 'd'):>9}"
        + (" *" if row["machine_was_busy"] else "")
    )


def row_names(
    rows: Sequence[Row], shapes: Mapping[str, str] = MappingProxyType({})
) -> tuple[str, ...]:
    """Name each row by graph and model, and by threads and backend where rows differ in them.

    ``shapes`` has other names for some graphs.
    """
    threads = len({row["threads"] for row in rows}) > 1
    backends = len({row.get("backend") for row in rows}) > 1
    return tuple(
        f"{shapes.get(row['shape'], row['shape'])}, {name_of(row['model'])}"
        + (f", {row['threads']} thread{'s'[: row['threads'] - 1]}" if threads else "")
        + (f", {row['backend']}" if backends else "")
        for row in rows
    )


def speedups(rows: Sequence[Row]) -> Figure:
    """Draw how many times faster than each alternative ours is, a row per graph and model."""
    every = {
        "best float": "speedup_vs_best_float",
        "PyG, CSR": "speedup_vs_pyg_sparse",
        "PyG, edge_index": "speedup_vs_pyg",
        "float simulation": "speedup_vs_simulated",
    }
    names = row_names(rows)
    threads = "/".join(map(str, sorted({row["threads"] for row in rows})))
    return Figure(
        "speedups",
        f"How many times faster packed prediction is than float inference, {threads} threads",
        "dots",
        "",
        f"times as fast as, {threads} threads",
        tuple(
            Series(label, names, tuple(row[key] for row in rows)) for label, key in every.items()
        ),
        log_y=True,
        baseline=1.0,
    )


def plot(report: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Draw the speedups to a file."""
    save(speedups(report["rows"]), path)
