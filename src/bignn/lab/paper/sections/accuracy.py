"""Sections of accuracies: ours beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence

from bignn.graph.published_sizes import PUBLISHED_SIZES
from bignn.lab.paper import rows as paper
from bignn.lab.paper.published import ACCURACY, RUNS_ASSUMED
from bignn.lab.paper.results import Results
from bignn.lab.paper.sections.costs import cost_of_run
from bignn.lab.paper.sections.speed import shape_speeds
from bignn.lab.paper.significance import SIGNIFICANT, verdict
from bignn.lab.paper.wording import NOT_MEASURED, above, accuracy, difference, published
from bignn.lab.report.document import Figure, Part, Section, Series, Table
from bignn.lab.report.wording import kib, mib, name_of, operations
from bignn.lab.study.run import Run

_WELCH = (
    "Accuracies are test accuracies in percent, mean ± sample standard deviation over seeds. The "
    "verdict is Welch's test of our mean against the paper's, whose number of runs is not "
    f"printed: {RUNS_ASSUMED} are assumed; a difference with p > {SIGNIFICANT} is put down to "
    "noise. Recipes are ours, chosen on validation (docs/trials.md lists what was tried, more for "
    "Bi-GCN than for float models), except for GAT on PubMed, which has its authors'; the ablation "
    "below has the paper's training."
)
#: The paper's number of runs is surely between these.
_FEW_OR_MANY = (3, 100)


def datasets(results: Results) -> Section:
    """Make the section of the paper's datasets and of those we added."""
    rows = []
    for name, facts in PUBLISHED_SIZES.items():
        measured = any(record["dataset"] == name for record in results.records)
        rows.append(
            (
                name_of(name),
                f"{facts.nodes:,}",
                "" if facts.paper_nodes is None else f"{facts.paper_nodes:,}",
                f"{facts.edges:,}",
                "" if facts.paper_edges is None else f"{facts.paper_edges:,}",
                f"{facts.classes}",
                f"{facts.features:,}",
                "yes" if measured else "no",
            )
        )
    columns = ("graph", "nodes", "paper", "edges", "paper", "classes", "features", "accuracy here")
    text = (
        "Edges are undirected, as their publishers store them. The last column shows whether we "
        "trained on the graph. For the paper's other graphs there are costs below, and speeds on "
        "synthetic graphs of the same sizes where these were measured."
    )
    return Section("datasets", "Datasets", (text, Table("", columns, tuple(rows))))


def _accuracy_table(results: Results, rows: Sequence[Run], caption: str) -> Table:
    """Make a table of our accuracy beside the paper's, and of what the models cost."""
    cells = []
    for run in rows:
        ours, printed = results.of(run), ACCURACY.get(run.dataset, {}).get(run.model)
        costs = cost_of_run(run)
        cells.append(
            (
                name_of(run.model),
                accuracy(ours),
                "" if ours is None else str(len(ours.test)),
                published(printed),
                difference(ours, printed),
                verdict(ours, printed),
                kib(costs.model_bytes),
                mib(costs.data_bytes),
                operations(costs.cycle_ops),
            )
        )
    columns = (
        *("model", "accuracy", "seeds", "paper", "difference", "verdict"),
        *("model size", "data size", "cycle operations"),
    )
    return Table(caption, columns, tuple(cells))


def transductive(results: Results) -> Section:
    """Make the section of the paper's table of citation graphs."""
    rows = paper.EXPERIMENTS["transductive"].rows
    of_graph = {name: [row for row in rows if row.dataset == name] for name in paper.CITATION}
    tables = [_accuracy_table(results, some, name_of(name)) for name, some in of_graph.items()]
    figures = [_accuracy_figure(results, name, some) for name, some in of_graph.items()]
    gat = (
        "GAT on PubMed is trained with eight output heads, as by its authors, and counted with "
        "one, as in the paper's size. SGC on CiteSeer has 7.40e7 operations by the paper's rule, "
        "which gives its other figures; it prints 7.32e7."
    )
    parts: tuple[Part, ...] = (_WELCH, *figures, *tables, _steadiness(results, rows), gat)
    return Section("transductive", "Transductive learning", parts)


def _accuracy_figure(results: Results, dataset: str, rows: Sequence[Run]) -> Figure:
    """Draw our accuracy and the paper's, a row per model."""
    names = tuple(name_of(row.model) for row in rows)
    found = [results.of(row) for row in rows]
    printed = [ACCURACY[dataset][row.model] for row in rows]
    return Figure(
        f"accuracy-{dataset}",
        f"Test accuracy on {name_of(dataset)}, mean and standard deviation",
        "dots",
        "",
        "test accuracy, %",
        (
            Series(
                "ours",
                names,
                tuple(None if one is None else one.mean for one in found),
                tuple(None if one is None else one.std for one in found),
            ),
            Series(
                "the paper's",
                names,
                tuple(mean for mean, _ in printed),
                tuple(std for _, std in printed),
                is_papers=True,
            ),
        ),
    )


def _steadiness(results: Results, rows: Sequence[Run]) -> str:
    """Describe how many verdicts depend on the number of runs, which the paper does not print."""
    pairs = [(results.of(run), ACCURACY.get(run.dataset, {}).get(run.model)) for run in rows]
    judged = [pair for pair in pairs if verdict(*pair)]
    turned = [
        pair
        for pair in judged
        if any(_direction(verdict(*pair, n)) != _direction(verdict(*pair)) for n in _FEW_OR_MANY)
    ]
    few, many = _FEW_OR_MANY
    return (
        f"Of {len(judged)} verdicts, {len(turned)} would change if the paper's runs were {few} or "
        f"{many} instead of {RUNS_ASSUMED}."
    )


def _direction(judged: str) -> str:
    """Return a verdict without its p-value."""
    return judged.partition(" (")[0]


def inductive(results: Results) -> Section:
    """Make the section of Reddit and Flickr, with the same models on the graphs at hand."""
    rows = paper.EXPERIMENTS["inductive"].rows
    names = list(dict.fromkeys(row.dataset for row in rows))
    tables = [
        _accuracy_table(results, [row for row in rows if row.dataset == name], name_of(name))
        for name in names
    ]
    text = (
        "Accuracy is F1-micro, since every node has one class. Training uses the training nodes "
        "and the edges between them only. For graphs whose data is not at hand there are costs "
        "alone."
    )
    return Section(
        "inductive",
        "Inductive learning",
        (
            text,
            *tables,
            *shape_speeds(results, ("reddit", "flickr")),
        ),
    )


def ogb(results: Results) -> Section:
    """Make the section of the paper's OGB graphs."""
    rows = paper.EXPERIMENTS["ogb"].rows
    names = ("ogbn-arxiv", "ogbn-products")
    tables = [
        _accuracy_table(results, [row for row in rows if row.dataset == name], name_of(name))
        for name in names
    ]
    return Section("ogb", "OGB", (*tables, *shape_speeds(results, names)))


def _beside_twin(results: Results, rows: Sequence[Run]) -> list[tuple[str, ...]]:
    """Make cells of the accuracy of rows and their difference from the first, the float twin."""
    cells: list[tuple[str, ...]] = []
    twin = results.of(rows[0])
    for row in rows:
        found = results.of(row)
        both = found is not None and twin is not None and row is not rows[0]
        distilled = f"distilled, {row.teachers} teachers" if row.teachers > 1 else "distilled"
        width = dict(row.changes).get("hidden_channels")
        trained = [distilled if row.distill else "", f"{width} wide" if width else ""]
        cells.append(
            (
                f"{name_of(row.dataset)}, {name_of(row.model)}",
                ", ".join(filter(None, trained)),
                NOT_MEASURED if found is None else found.plus_minus(2),
                "" if found is None else str(len(found.test)),
                above(found, twin) if both else "",  # type: ignore[arg-type]
            )
        )
    return cells


_TWIN_COLUMNS = ("graph and model", "trained", "accuracy", "seeds", "minus the float model")


def twins(results: Results) -> Section:
    """Make the section of 1-bit models beside their float twins."""
    cells = [
        cell
        for dataset in paper.RECOMMENDED
        for cell in _beside_twin(results, paper.twin_rows(dataset))
    ]
    text = (
        "Does a bit per weight cost accuracy? For each graph: the float GCN of our recipe; a 1-bit "
        "version distilled from float GCNs, as wide as `bignn.recommend_width` advises for the "
        "float one; a float student of the same teachers; and 1-bit models of the float one's own "
        "width. On citation graphs the teachers have another recipe than the first row "
        "(docs/trials.md). A 1-bit model several times as wide still takes a fraction of its "
        "twin's memory (`bignn cost`). Accuracies have ± the standard deviation of a seed, "
        "differences of means ± their standard error."
    )
    table = Table("", _TWIN_COLUMNS, tuple(cells))
    figure = _points_above_twins(results)
    parts: tuple[Part, ...] = (text, table) if figure is None else (text, table, figure)
    return Section("twins", "1-bit models and their float twins", parts)


#: Rows of :func:`bignn.lab.paper.rows.twin_rows` after the float model, in a figure.
_BESIDE_TWINS = ("Bi-GCN, distilled, wide", "GCN, distilled", "Bi-GCN, distilled", "Bi-GCN")


def _points_above_twins(results: Results) -> Figure | None:
    """Draw the points of accuracy above the float model, a row per graph."""
    groups: list[str] = []
    above: dict[str, list[tuple[float, float | None] | None]] = {
        label: [] for label in _BESIDE_TWINS
    }
    for dataset in paper.RECOMMENDED:
        twin, *others = map(results.of, paper.twin_rows(dataset))
        if twin is None or not any(others):
            continue
        groups.append(name_of(dataset))
        for label, other in zip(_BESIDE_TWINS, others, strict=True):
            above[label].append(None if other is None else other.minus(twin))
    if not groups:
        return None
    return Figure(
        "twins",
        "Points of test accuracy above the float GCN, with standard errors",
        "dots",
        "",
        "points",
        tuple(
            Series(
                label,
                tuple(groups),
                tuple(None if one is None else one[0] for one in found),
                tuple(None if one is None else one[1] for one in found),
            )
            for label, found in above.items()
        ),
        baseline=0.0,
    )


def family(results: Results) -> Section:
    """Make the section of the paper's other models beside their float twins."""
    cells = [
        cell for pair in paper.FAMILY for cell in _beside_twin(results, paper.family_rows(*pair))
    ]
    text = (
        "GraphSAGE and GraphSAINT are inductive, on sampled neighbours and on random walks; GAT "
        "trains on the whole graph. Twins have the same widths and as many epochs; binary ones "
        "have batch normalisation, which did not help float GraphSAGE and GraphSAINT over the "
        "three graphs (docs/trials.md; not tried for GAT). Float twins are not distilled."
    )
    table = Table("", _TWIN_COLUMNS, tuple(cells))
    return Section("family", "The other models and their twins", (text, table))


def ablation(results: Results) -> Section:
    """Make the section of which choices carry the accuracy of Bi-GCN."""
    cells = []
    for label, (distill, changes) in paper.ABLATIONS.items():
        found = [
            results.of(Run(dataset, "bi-gcn", distill=distill, changes=changes))
            for dataset in paper.CITATION
        ]
        base = [
            results.of(Run(dataset, "bi-gcn", changes=paper.AS_PAPER_BINARY))
            for dataset in paper.CITATION
        ]
        seeds = {len(f.test) for f in found if f is not None}
        shown = []
        for one, first in zip(found, base, strict=True):
            shown.append(accuracy(one))
            both = one is not None and first is not None
            shown.append(f"{one.mean - first.mean:+.1f}" if both else "")  # type: ignore[union-attr]
        cells.append((label, *shown, "/".join(map(str, sorted(seeds)))))
    columns = ("what is changed",)
    for dataset in paper.CITATION:
        columns = (*columns, name_of(dataset), "change")  # type: ignore[assignment]
    return Section(
        "ablation",
        "What carries the accuracy of Bi-GCN",
        (
            "Each row changes one thing of the paper's training; below, our recipes.",
            Table("", (*columns, "seeds"), tuple(cells)),
        ),
    )
