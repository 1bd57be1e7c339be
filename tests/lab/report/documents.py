"""Documents that tests of pages share."""

from __future__ import annotations

from dataclasses import replace

from bignn.lab.report.document import (
    Document,
    Figure,
    Listing,
    Panels,
    Section,
    Series,
    Table,
    Verdict,
)

#: A name as someone may give a dataset, to see whether a page runs it.
HOSTILE = '<img src=x onerror="alert(1)"> & <script>\'</script>'

ACCURACY = Table(
    "Test accuracy on Cora, %, of `bignn train cora`.",
    ("model", "ours", "the paper's", "difference", "verdict", "note"),
    (
        ("GCN", "83.2 ± 0.4", "81.4 ± 0.4", "+1.8", Verdict("as high or higher", "good"), "float"),
        ("Bi-GCN", "81.0 ± 0.9", "81.2 ± 0.8", "-0.2", Verdict("within noise", "even"), "bits"),
        ("Bi-GCN-W", "77.6 ± 0.7", "78.3 ± 1.5", "-0.7", Verdict("lower", "poor"), "<&>"),
        (HOSTILE, "", "", "", "", 'a "quoted" note'),
    ),
)
WIDE = Table(
    "Sizes and operations.",
    ("graph[^1]", *(f"column {number}" for number in range(14))),
    tuple(
        (name, *(f"{7919 * n:,}" for n in range(14)))
        for name in ("Cora[^2]", "PubMed[^2]", HOSTILE + "[^9]")
    ),
    ("Some <graphs>.", "With `code`."),
)
WIDTHS = (4, 16, 64, 256, 1024)
LINES = Figure(
    "width",
    f"Accuracy against width on {HOSTILE}",
    "lines",
    "hidden units",
    "test accuracy, %",
    (
        Series("GCN", WIDTHS, (70.0, 78.5, None, 80.1, 80.3), (1.0, 0.5, 0.0, 0.3, 0.25)),
        Series("GCN, paper", WIDTHS, (69.0, 78.0, 79.0, 79.5, 79.6), is_papers=True),
        Series("_$x^2$ & <b>", (64,), (75.0,), (2.0,)),
        Series("empty", (), ()),
    ),
    log_x=True,
    verticals=(("bound 81", 81.0), ("recommended 256", 256.0)),
)
POINTS = Figure(
    "size",
    "Accuracy against size",
    "points",
    "model size, bits",
    "test accuracy, %",
    (
        Series("GCN", (2.95e6,), (83.2,), (0.4,)),
        Series("GCN, paper", (2.95e6,), (81.4,), (0.4,), is_papers=True),
        Series("Bi-GCN", (94e3,), (82.0,)),
        Series("Bi-GCN, paper", (94e3,), (81.2,), is_papers=True),
    ),
    log_x=True,
)
GRAPHS = ("Cora", "CiteSeer", "PubMed", "flickr", "arxiv", "reddit", "products")
DOTS = Figure(
    "speed",
    "How many times faster",
    "dots",
    "",
    "times faster than",
    (
        Series("best float", GRAPHS, (2.4, 3.3, 2.0, 4.0, 3.9, 4.6, 0.8)),
        Series("PyG, CSR", GRAPHS, (16.5, 45.0, 6.0, 10.0, 8.0, 6.0, 7.0)),
        Series("PyG, edge_index", GRAPHS, (22.0, 63.0, 9.2, 21.0, 55.0, None, None)),
        Series("float simulation", GRAPHS, (19.0, 59.0, 6.8, 6.3, 7.1, 5.1, 7.7)),
    ),
    log_y=True,
    baseline=1.0,
)
PANELS = Panels("both", "Two figures in one picture", (DOTS, replace(DOTS, caption="Again")))
DOCUMENT = Document(
    "Binary networks & the paper's",
    "Trained again by `bignn reproduce` and set beside what is printed.",
    (("30.4x", "less memory for weights"), ("82.0 %", "accuracy of `Bi-GCN`"), ("18 of 21", "<b>")),
    (
        Section("transductive", "Transductive learning", ("Citation <graphs>.", ACCURACY, WIDE)),
        Section("width", "Width", ("A lone ` stays.", LINES, POINTS)),
        Section("width", HOSTILE, (DOTS, PANELS)),
        Section(
            "made",
            "How it was made",
            ("`bignn reproduce all`", Listing("F · B\n  = K − 2·popcount(F ^ B) <>"), "On CPUs."),
        ),
    ),
)
TABLES = (ACCURACY, WIDE)
FIGURES = (LINES, POINTS, DOTS, PANELS)
