"""The last sections of the results: an example of the engine, then commands and machines."""

from __future__ import annotations

from collections import Counter

from bignn.lab.paper.extraction import diagram, extraction
from bignn.lab.paper.results import Results
from bignn.lab.report.document import Listing, Section, Table


def worked_example(results: Results) -> Section:
    """Make the section of the paper's Fig. 2, with real numbers."""
    text = (
        "Three nodes of PubMed, one of each class, and as weights the means of the classes. Nine "
        "products of eight numbers become nine XNORs of eight bits and a scale each; the largest "
        "of each row, the node's class, is the same."
    )
    return Section(
        "extraction", "A binary feature extraction", (text, Listing(diagram(extraction())))
    )


def machines(results: Results) -> Section:
    """Make the section of commands, versions and machines."""
    # A run that several tables share has a line for each of their names.
    runs = {(record["recipe"], record["seed"]): record for record in results.records}
    counts = Counter((run["machine"], run["version"], run["torch"]) for run in runs.values())
    cells = tuple((*kind, f"{count:,}") for kind, count in counts.items())
    return Section(
        "machines",
        "Commands and machines",
        (
            f"`bignn reproduce all --out {results.shown_folder}` trains the models (a line each in "
            "`runs.jsonl`; what is there is not trained again) and writes this page; `bignn bench "
            f"--json > {results.shown_folder}/bench.json` measures speed.",
            Table("Runs by machine", ("machine", "bignn", "torch", "runs"), cells),
        ),
    )
