"""The section of graphs past memory shows what was recorded, and is left out without records."""

import json
from pathlib import Path

from bignn.lab.paper.results import Results
from bignn.lab.paper.sections import document_of
from bignn.lab.paper.sections.store import store
from bignn.lab.report.document import Figure, Table

PREDICTED = {
    "num_nodes": 1000,
    "num_edges": 2_000_000,
    "layers": [{"layer": 0, "seconds": 1.0}, {"layer": 1, "seconds": 2.0}],
    "seconds": 6.0,
    "store_bytes": 2**30,
    "peak_anonymous_bytes": 2**29,
    "peak_file_bytes": 2**28,
}
TRAINED = {
    "epochs": 1,
    "batches": 5,
    "batch_size": 256,
    "seconds_per_1000_batches": 70.4,
    "peak_anonymous_bytes": 2**30,
    "seeds": [{"test_acc": 51.25, "whole_graph_acc": 60.0}, {"test_acc": 50.0}],
}
RECORDED = {
    "predict": {"1": {**PREDICTED, "seconds": 60.0}, "64": PREDICTED},
    "float": {
        "64": {
            "threads": 2,
            "seconds": 30.0,
            "layers": [10.0, 20.0],
            "peak_bytes": 2**31,
            "ours": {"seconds": 7.0, "peak_anonymous_bytes": 2**29},
        }
    },
    "limited": {
        "4": {
            "limit": 2**31,
            "peak": 2**31,
            "peak_anonymous_bytes": 2**30,
            "seconds": 9.0,
            "layers": [{"layer": 0, "seconds": 9.0}],
            "test_acc": 30.0,
            "is_trained": False,
        }
    },
    "pack": {
        "10": {
            "bytes": 1e10,
            "read_rate": 1e9,
            "read_rate_after": 2e9,
            "statistics_rate": 9e8,
            "bits_rate": 8e8,
            "peak_bytes": 2**28,
        }
    },
    "edges": {"9": {"num_edges": 9, "seconds": 1.0, "peak_bytes": 2**28}},
    "train": {"8-256": TRAINED, "64-256-memory": TRAINED},
}


def test_every_record_is_shown(tmp_path: Path) -> None:
    (tmp_path / "store.json").write_text(json.dumps(RECORDED))
    section = store(Results(tmp_path))
    tables = [part for part in section.parts if isinstance(part, Table)]
    assert [len(table.rows) for table in tables] == [2, 1, 1, 1, 1, 2]
    small, whole = tables[0].rows
    assert small[0] == "1/64"
    assert small[4:7] == ("6", "1 + 2", "1000.0")  # 6 s over 3 layers of 2 million edges
    assert whole[0] == "1"
    assert tables[1].rows[0] == ("1/64", "2", "30", "10 + 20", "2.0", "7", "0.50")
    assert tables[2].rows[0] == ("1/4", "2.0", "2.00", "1.00", "9", "9", "30.0")
    assert [row[0] for row in tables[5].rows] == ["1/64, in memory", "1/8, store"]
    assert tables[5].rows[0][1:3] == ("1 x 5", "256")
    assert [row[-2:] for row in tables[5].rows] == [("–", "60.0"), ("51.2, 50.0", "60.0")]
    flat = "time per edge differs by at most 10.00x, the memory per edge by 1.00x."
    assert f"From 1/64 to 1 the {flat}" in section.parts
    (figure,) = [part for part in section.parts if isinstance(part, Figure)]
    assert figure.series[0].y == (1000.0, 10000.0)


def test_there_is_no_section_without_records(tmp_path: Path) -> None:
    names = [section.name for section in document_of(tmp_path, even_if_empty=True).sections]
    assert "store" not in names
    (tmp_path / "store.json").write_text(json.dumps(RECORDED))
    document = document_of(tmp_path, even_if_empty=True)
    assert "store" in [section.name for section in document.sections]
