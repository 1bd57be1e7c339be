"""The section of graphs past memory: what ``benchmarks/store_scale.py`` has measured."""

from __future__ import annotations

from typing import Any

from bignn.lab.paper.results import Results
from bignn.lab.report.document import Figure, Part, Section, Series, Table

#: Layers of the model that was run; each visits every edge once.
_LAYERS = 3
_GIB = 2**30


def store(results: Results) -> Section:
    """Make the section of prediction and training from stores of several sizes."""
    found = results.store
    parts: list[Part] = [
        "Synthetic graphs of ogbn-papers100M's shape and smaller ones (`bignn synth papers100M`), "
        "their bits and edges on disk; neighbours are anywhere, so that no order of reads helps. A "
        "3-layer Bi-GraphSAGE of 256 hidden neurons predicts every node by "
        "`bignn predict MODEL DIR --memory 8G`; `benchmarks/store_scale.py` measures it (one "
        "machine, 2 cores)."
    ]
    predicted = _by_scale(found.get("predict", {}))
    if predicted:
        parts += [_prediction(predicted), _per_edge(predicted), _flatness(predicted)]
    if beside := _by_scale(found.get("float", {})):
        parts.append(_beside_float(beside))
    if limited := found.get("limited"):
        parts.append(_limited(limited))
    if packed := found.get("pack"):
        parts.append(_packing(packed))
    if sorted_edges := found.get("edges"):
        parts.append(_sorting(sorted_edges))
    if trained := found.get("train"):
        parts.append(_training(trained))
    return Section("store", "Past memory", tuple(parts))


_Rows = list[tuple[int, dict[str, Any]]]


def _by_scale(rows: dict[str, dict[str, Any]]) -> _Rows:
    return sorted(((int(scale), row) for scale, row in rows.items()), reverse=True)


def _share(scale: int) -> str:
    return "1" if scale == 1 else f"1/{scale}"


def _ns(row: dict[str, Any]) -> float:
    return float(1e9 * row["seconds"] / (_LAYERS * row["num_edges"]))


def _prediction(rows: _Rows) -> Table:
    cells = tuple(
        (
            _share(scale),
            f"{row['num_nodes']:,}",
            f"{row['num_edges']:,}",
            f"{row['store_bytes'] / _GIB:.2f}",
            f"{row['seconds']:.0f}",
            " + ".join(f"{layer['seconds']:.0f}" for layer in row["layers"]),
            f"{_ns(row):.1f}",
            f"{row['peak_anonymous_bytes'] / _GIB:.2f}",
            f"{row['peak_file_bytes'] / _GIB:.2f}",
        )
        for scale, row in rows
    )
    columns = (
        *("scale", "nodes", "edges", "store, GiB", "seconds", "by layer[^1]"),
        *("ns per edge and layer", "own memory, GiB", "mapped, GiB"),
    )
    notes = (
        "Of a run that was killed (-9) and continued, the layers after that; seconds count all.",
    )
    return Table("All nodes predicted from a store", columns, cells, notes)


def _per_edge(rows: _Rows) -> Figure:
    edges = tuple(float(row["num_edges"]) for _, row in rows)
    time = tuple(_ns(row) for _, row in rows)
    memory = tuple(float(row["peak_anonymous_bytes"] / row["num_edges"]) for _, row in rows)
    series = (
        Series("nanoseconds per edge and layer", edges, time),
        Series("bytes of memory per edge", edges, memory),
    )
    caption = "Time and memory of prediction from a store, per edge"
    return Figure("store-per-edge", caption, "lines", "edges", "per edge", series, log_x=True)


def _beside_float(rows: _Rows) -> Table:
    cells = tuple(
        (
            _share(scale),
            f"{row['threads']}",
            f"{row['seconds']:.0f}",
            " + ".join(f"{seconds:.0f}" for seconds in row["layers"]),
            f"{row['peak_bytes'] / _GIB:.1f}",
            f"{row['ours']['seconds']:.0f}",
            f"{row['ours']['peak_anonymous_bytes'] / _GIB:.2f}",
        )
        for scale, row in rows
    )
    columns = (
        *("scale", "threads", "float[^1], s", "by layer", "its memory, GiB"),
        *("from the store[^2], s", "own memory, GiB"),
    )
    notes = (
        "The weights of PyG's SAGEConv, means by torch's CSR product, blocks of rows without large "
        "temporary arrays. The time of making or reading features and edges is not counted; that "
        "of the system's giving it memory is.",
        "Everything: a new process, reading bits and edges from disk, writing classes.",
    )
    caption = "The same network in float, all in memory, and in the same run from the store"
    return Table(caption, columns, cells, notes)


def _limited(rows: dict[str, dict[str, Any]]) -> Table:
    cells = tuple(
        (
            _share(int(scale)),
            f"{row['limit'] / _GIB:.1f}",
            f"{row['peak'] / _GIB:.2f}",
            f"{row['peak_anonymous_bytes'] / _GIB:.2f}",
            f"{row['seconds']:.0f}",
            " + ".join(f"{layer['seconds']:.0f}" for layer in row["layers"]),
            f"{row['test_acc']:.1f}{'[^1]' * row['is_trained']}",
        )
        for scale, row in rows.items()
    )
    columns = (
        *("scale", "limit, GiB", "most charged, GiB", "own memory, GiB", "seconds", "by layer"),
        "test accuracy, %",
    )
    caption = "With `--memory` as the limit of a control group, page cache included"
    note = "Of a model trained for an epoch at scale 1/8."
    notes = (note,) if any(row["is_trained"] for row in rows.values()) else ()
    return Table(caption, columns, cells, notes)


def _packing(rows: dict[str, dict[str, Any]]) -> Table:
    cells = tuple(
        (
            f"{row['bytes'] / 1e9:.1f}",
            " / ".join(f"{row[key] / 1e6:,.0f}" for key in ("read_rate", "read_rate_after")),
            f"{row['statistics_rate'] / 1e6:,.0f}",
            f"{row['bits_rate'] / 1e6:,.0f}",
            f"{row['peak_bytes'] / _GIB:.2f}",
        )
        for row in rows.values()
    )
    columns = (
        *("floats, GB", "the file read alone, before / after, MB/s"),
        *("statistics, MB/s", "bits[^1], MB/s", "memory, GiB"),
    )
    notes = ("The second pass, of a file that the system may have kept in memory since the first.",)
    return Table("`bignn pack-features` of a float memmap, two passes", columns, cells, notes)


def _sorting(rows: dict[str, dict[str, Any]]) -> Table:
    cells = tuple(
        (f"{row['num_edges']:,}", f"{row['seconds']:.0f}", f"{row['peak_bytes'] / _GIB:.2f}")
        for row in rows.values()
    )
    return Table("`bignn pack-edges` of random edges", ("edges", "seconds", "memory, GiB"), cells)


def _training(rows: dict[str, dict[str, Any]]) -> Table:
    cells = []
    for key, row in sorted(rows.items(), key=lambda item: _scale_and_batch(item[0])):
        scale, _, *place = key.split("-")
        note = "" if row.get("is_watched") else "[^3]"
        # The graph in memory is validated and tested on all neighbours anyway.
        sampled = [] if place else [seed["test_acc"] for seed in row["seeds"]]
        cells.append(
            (
                f"{_share(int(scale))}, {'in memory' if place else 'store'}",
                f"{row['epochs']} x {row['batches']:,}",
                f"{row['batch_size']}",
                "–" if (seconds := row["seconds_per_1000_batches"]) is None else f"{seconds:.0f}",
                f"{row['peak_anonymous_bytes'] / _GIB:.2f}{note}",
                _scores(sampled),
                _scores([seed.get("whole_graph_acc") for seed in row["seeds"]]),
            )
        )
    columns = (
        *("scale", "epochs x batches", "nodes a batch", "s per 1,000 batches"),
        *("own memory, GiB", "test accuracy, sampled neighbours[^1], %", "all neighbours[^2], %"),
    )
    notes = (
        "As training from a store tests itself: fan-outs 5, 5, 5, by seed.",
        "By seed; of a store `bignn predict` on the packed model, in memory the trained model.",
        "Looked at after each epoch; that of other rows is watched all the time, while the trained "
        "model is tested too.",
    )
    caption = "Bi-GraphSAGE trained by neighbour sampling, fan-outs 5, 5, 5"
    return Table(caption, columns, tuple(cells), notes)


def _scale_and_batch(key: str) -> tuple[int, int, list[str]]:
    """Return the order of a record of training: large scales last, the store before memory."""
    scale, batch, *place = key.split("-")
    return -int(scale), int(batch), place


def _scores(scores: list[float | None]) -> str:
    return ", ".join(f"{score:.1f}" for score in scores if score is not None) or "–"


def _flatness(rows: _Rows) -> str:
    """Make the sentence that says how flat time and memory per edge are."""
    time = [_ns(row) for _, row in rows]
    memory = [row["peak_anonymous_bytes"] / row["num_edges"] for _, row in rows]
    spread = [max(values) / min(values) for values in (time, memory)]
    scales = " to ".join(_share(rows[place][0]) for place in (0, -1))
    return (
        f"From {scales} the time per edge differs by at most {spread[0]:.2f}x, the memory per edge "
        f"by {spread[1]:.2f}x."
    )
