"""``bignn reproduce``: trains the runs behind tables and figures, then writes their page."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import torch

from bignn.errors import InputError, input_error
from bignn.files import atomic_path, check_writable
from bignn.graph import load
from bignn.lab.paper import width
from bignn.lab.paper.results import PAGE, Results
from bignn.lab.paper.rows import EXPERIMENTS, SWEEPS
from bignn.lab.paper.sections import SECTIONS, document_of
from bignn.lab.paper.width import Study
from bignn.lab.report.document import Picture
from bignn.lab.report.figures import save
from bignn.lab.report.markdown import markdown
from bignn.lab.report.packages import check_lab
from bignn.lab.study.run import RUNS, Run
from bignn.lab.study.runs import do_runs
from bignn.train.jobs import checked_jobs

#: Sections that show the runs of another experiment.
_RUNS_OF = {"overview": "transductive", "entropy": "width"}


def run(
    names: Sequence[str],
    out: Path,
    *,
    seeds: int | None = None,
    only: Sequence[str] = (),
    device: str = "cpu",
    jobs: int = 1,
    anew: bool = False,
    page: Path | None = None,
) -> dict[str, Any]:
    """Train the runs that ``out`` does not have, and write a page of all that it has.

    Args:
        names: keys of :data:`bignn.lab.paper.sections.SECTIONS`, or none for all.
        out: the results folder.
        seeds: of every row; None for what each experiment has by default.
        only: names of datasets and models to keep to.
        device: where to train.
        jobs: processes.
        anew: puts what is there aside (``runs-1.jsonl``, ``teachers-1``, ...) instead of going on
            from it.
        page: the file to write; None for ``out/results.md``.

    """
    chosen = list(dict.fromkeys(names)) or list(SECTIONS)
    for name in chosen:
        if name not in SECTIONS:
            raise input_error("what", f"'all' or some of {list(SECTIONS)}", repr(name))
    if seeds is not None and seeds < 1:
        raise input_error("seeds", "at least 1", seeds)
    checked_jobs(jobs)
    check_lab()
    experiments = dict.fromkeys(_RUNS_OF.get(name, name) for name in chosen)
    wanted = [
        run for name in experiments if name in EXPERIMENTS for run in EXPERIMENTS[name].runs(seeds)
    ]
    wanted = _kept(wanted, only)
    for file in (out / RUNS, page):
        if file is not None:
            check_writable(file)
    skipped = _absent({run.dataset for run in wanted})
    for dataset, why in skipped.items():
        print(f"rows on {dataset} are skipped: {why}", file=sys.stderr)
    if anew:
        _put_aside(out)
    at_hand = [run for run in wanted if run.dataset not in skipped]
    records = do_runs(at_hand, out, device=device, jobs=jobs)
    if "width" in experiments:
        _measure_widths(out, seeds, skipped, only, device, jobs)
    written = write(out, page)
    results = Results(out)
    not_measured = _not_measured(chosen, results)
    for name, why in not_measured.items():
        print(f"note: nothing was measured for {name}: {why}", file=sys.stderr)
    rows = dict.fromkeys(run.row for run in at_hand)
    summaries = {run.row: results.of(run) for run in at_hand}
    return {
        "what": chosen,
        "runs": len(records),
        "rows": [
            {
                "row": row,
                "mean": s.mean,
                "std": s.std,
                "seeds": len(s.test),
                "accuracy": s.plus_minus(),
            }
            for row in rows
            if (s := summaries[row]) is not None
        ],
        "skipped": skipped,
        "not_measured": not_measured,
        "ledger": str(out / RUNS) if (out / RUNS).exists() else None,
        "page": str(written),
        "sections": chosen,
    }


def _measure_widths(
    out: Path,
    seeds: int | None,
    skipped: Collection[str],
    only: Sequence[str],
    device: str,
    jobs: int,
) -> None:
    """Measure the entropies of the narrowest proper float models, into ``out/capacity-*.json``."""
    count = EXPERIMENTS["width"].seeds if seeds is None else seeds
    for sweep in SWEEPS:
        if sweep.dataset in skipped or len(_kept(sweep.rows(), only)) < len(sweep.rows()):
            continue
        study = Study(sweep.dataset, swept=sweep.swept, seeds=count, as_paper=sweep.as_paper)
        width.run(study, out, device=device, jobs=jobs)


def write(folder: Path, page: Path | None = None) -> Path:
    """Write the document of a results folder as Markdown, its figures beside it; return it."""
    document = document_of(folder, even_if_empty=True)  # some sections need no runs
    page = folder / PAGE if page is None else page
    figures = page.parent / f"{page.stem}-figures"
    for section in document.sections:
        for part in section.parts:
            if isinstance(part, Picture):
                save(part, figures / f"{part.name}.svg")
    with atomic_path(page) as temporary:
        temporary.write_text(markdown(document, figures.name))
    return page


def describe(report: dict[str, Any]) -> str:
    """Describe the rows as a table, with the paths of the ledger and the page."""
    longest = max((len(row["row"]) for row in report["rows"]), default=0)
    lines = [
        f"{row['row']:<{longest}}  {row['accuracy']} %  "
        f"({row['seeds']} seed{'s'[: row['seeds'] - 1]})"
        for row in report["rows"]
    ]
    lines += [f"not measured here: {name}" for name in report["skipped"]]
    lines += [] if report["ledger"] is None else [f"runs   {report['ledger']}"]
    return "\n".join([*lines, f"page   {report['page']}"])


def _kept(runs: Sequence[Run], only: Sequence[str]) -> list[Run]:
    datasets = {run.dataset for experiment in EXPERIMENTS.values() for run in experiment.rows}
    models = {run.model for experiment in EXPERIMENTS.values() for run in experiment.rows}
    for name in only:
        if name not in datasets | models:
            raise input_error(
                "only", f"some of {sorted(datasets)} and {sorted(models)}", repr(name)
            )
    some_data, some_models = datasets & set(only), models & set(only)
    return [
        run
        for run in runs
        if (not some_data or run.dataset in some_data)
        and (not some_models or run.model in some_models)
    ]


def _absent(datasets: set[str]) -> dict[str, str]:
    """Return the datasets that cannot be loaded, and why."""
    absent = {}
    for dataset in sorted(datasets):
        try:
            load(dataset)
        except InputError as error:
            absent[dataset] = str(error)
    return absent


def _not_measured(chosen: Collection[str], results: Results) -> dict[str, str]:
    """Return the sections that show measurements of other commands and have none, and why."""
    folder = results.shown_folder
    no_gpu = "" if torch.cuda.is_available() else "this machine has no GPU that torch can use; "
    found = {
        "speed": (results.bench, f"'bignn bench --json > {folder}/bench.json' measures it"),
        "gpu": (results.gpu, f"{no_gpu}'bignn bench shapes --device cuda --json > {folder}/"
                             "bench-gpu.json' measures it on a GPU"),
        "store": (results.store, f"'benchmarks/store_scale.py' measures it, into a store.json to "
                                 f"copy to '{folder}'"),
    }  # fmt: skip
    return {name: why for name, (held, why) in found.items() if name in chosen and not held}


def _put_aside(folder: Path) -> None:
    """Rename the runs, and the checkpoints of teachers and of models whose entropy was measured."""
    there = [path for name in (RUNS, "teachers", "measured") if (path := folder / name).exists()]
    number = 1
    while any(_numbered(path, number).exists() for path in there):
        number += 1
    for path in there:
        path.rename(_numbered(path, number))
        print(f"'{path}' is now '{_numbered(path, number)}'", file=sys.stderr)


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}-{number}{path.suffix}")
