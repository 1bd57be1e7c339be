"""What a run leaves behind is what a later one of the same job can go on from."""

from pathlib import Path

import numpy as np
import pytest

from bignn.errors import FileError
from bignn.runtime.store.unfinished import UnfinishedPart


def begun(folder: Path, job: str, *, record: bool = True) -> UnfinishedPart:
    """A run that has written ten rows, with a record of them or none."""
    part = UnfinishedPart(folder, "rows", {"job": job})
    writer = part.writer("values", "<i8", [])
    writer.append(np.arange(10))
    writer.flush()
    if record:
        part.record(force=True)
    return part


def test_what_is_recorded_is_continued(tmp_path: Path) -> None:
    begun(tmp_path / "s", "a").close()
    with UnfinishedPart(tmp_path / "s", "rows", {"job": "a"}) as part:
        assert part.was_begun
        part.writer("values", "<i8", []).append(np.arange(5))
        part.finish({})
    assert sorted(path.name for path in (tmp_path / "s").iterdir()) == ["rows.json", "values.npy"]
    assert np.load(tmp_path / "s" / "values.npy").tolist() == [*range(10), *range(5)]


def test_what_is_not_recorded_goes(tmp_path: Path) -> None:
    part = begun(tmp_path / "new" / "s", "a", record=False)
    part.scratch = tmp_path / "new" / "s" / "scratch"
    part.scratch.mkdir()
    part.close()
    assert not (tmp_path / "new" / "s").exists()
    (tmp_path / "s").mkdir()  # a folder that was there stays
    begun(tmp_path / "s", "a", record=False).close()
    assert list((tmp_path / "s").iterdir()) == []


def test_another_job_in_between_is_not_taken_for_the_first(tmp_path: Path) -> None:
    """Files that a killed run of another job has overwritten are not gone on from."""
    begun(tmp_path, "a").close()
    other = begun(tmp_path, "b", record=False)
    (tmp_path / ".rows.lock").unlink()  # as if it were killed now
    part = UnfinishedPart(tmp_path, "rows", {"job": "a"})
    assert not part.was_begun
    part.close()
    other.close()


def test_one_process_writes_at_a_time(tmp_path: Path) -> None:
    part = begun(tmp_path, "a")
    with pytest.raises(FileError, match="another process writes its rows now"):
        UnfinishedPart(tmp_path, "rows", {"job": "a"})
    part.close()
    UnfinishedPart(tmp_path, "rows", {"job": "a"}).close()
