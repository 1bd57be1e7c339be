"""The file of finished runs: whole lines only, whoever is killed."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bignn.errors import FileError, InputError, WriteError
from bignn.lab.study.ledger import Ledger


def test_what_is_appended_is_read(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "new" / "runs.jsonl")
    assert ledger.read() == []
    ledger.append({"row": "ä", "seed": 0})
    ledger.append({"row": "b", "seed": 1})
    assert ledger.read() == [{"row": "ä", "seed": 0}, {"row": "b", "seed": 1}]


def test_broken_lines_are_reported_and_skipped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger = Ledger(tmp_path / "runs.jsonl")
    ledger.append({"seed": 0})
    with ledger.path.open("ab") as file:
        file.write(b'{"seed": 1, "acc')  # a writer that was killed
    ledger.append({"seed": 2})
    assert ledger.read() == [{"seed": 0}, {"seed": 2}]
    assert "1 line is not a record" in capsys.readouterr().err
    too_deep = b"[" * 100_000
    ledger.path.write_bytes(b'[1]\n{"seed": 3}\n\xff\xfe\n\n' + too_deep + b"\n")
    assert ledger.read() == [{"seed": 3}]
    assert "3 lines are not records" in capsys.readouterr().err


def fails_to_append(ledger: Ledger, name: str, broken: object, match: str) -> None:
    """Appending fails in one line while a function of the system is broken."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(name, broken)
        with pytest.raises(WriteError, match=match):
            ledger.append({"seed": 2})


def test_a_record_is_written_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk may take a part of what it is given, and then no more."""
    ledger = Ledger(tmp_path / "runs.jsonl")
    ledger.append({"seed": 0})
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr("os.write", lambda file, data: write(file, bytes(data)[:3]))
        ledger.append({"seed": 1})
    assert ledger.read() == [{"seed": 0}, {"seed": 1}]

    before = ledger.path.read_bytes()
    room = [5]

    def nearly_full(file: int, data: bytes) -> int:
        if not room:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, bytes(data)[: room.pop()])

    def failing_sync(file: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    for name, broken, line in (
        ("os.write", nearly_full, "No space left on device"),
        ("os.fsync", failing_sync, "Input/output error"),
    ):
        fails_to_append(ledger, name, broken, rf"cannot write '.*runs\.jsonl': {line}")
        assert ledger.path.read_bytes() == before


def test_a_folder_in_its_place_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot read"):
        Ledger(tmp_path).read()
    with pytest.raises(FileError, match="cannot write"):
        Ledger(tmp_path).append({})


def test_a_file_that_cannot_be_opened_or_locked_is_one_line(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "runs.jsonl")
    real_open = os.open

    def refusing_open(path: os.PathLike[str], *options: int) -> int:
        if path == ledger.path:
            raise OSError(errno.EROFS, "Read-only file system")
        return real_open(path, *options)

    def refusing_lock(handle: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    for name, broken, line in (
        ("os.open", refusing_open, "cannot write '.*': Read-only file system"),
        ("bignn.lab.study.ledger.fcntl.flock", refusing_lock, "cannot lock '.*': No locks avail"),
    ):
        fails_to_append(ledger, name, broken, line)
    assert ledger.read() == []


_WRITER = """
import sys
from bignn.lab.study.ledger import Ledger
ledger = Ledger(sys.argv[1])
for number in range(10**9):
    ledger.append({"writer": int(sys.argv[2]), "number": number, "text": "x" * 3000})
"""


def test_writers_that_are_killed_leave_whole_lines(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    writers = [
        subprocess.Popen([sys.executable, "-c", _WRITER, str(path), str(name)]) for name in (0, 1)
    ]
    deadline = time.monotonic() + 600
    while (not path.exists() or path.stat().st_size < 100_000) and time.monotonic() < deadline:
        time.sleep(0.01)
    for writer in writers:
        writer.kill()
        writer.wait()
    ledger = Ledger(path)
    ledger.append({"writer": 2, "number": 0})
    records = ledger.read()
    assert records[-1] == {"writer": 2, "number": 0}
    for name in (0, 1):  # in order, none missing in between
        numbers = [record["number"] for record in records if record["writer"] == name]
        assert numbers == list(range(len(numbers)))
    assert len(records) > 20


def test_without_fcntl_runs_are_refused_in_one_line_and_records_are_read(tmp_path: Path) -> None:
    """As on Windows."""
    path = tmp_path / "runs.jsonl"
    Ledger(path).append({"seed": 0})
    code = (
        "import sys; sys.modules['fcntl'] = None\n"
        "from bignn.cli import main\n"
        "from bignn.lab.study.ledger import Ledger\n"
        f"assert Ledger({str(path)!r}).read() == [{{'seed': 0}}]\n"
        f"out = ['--out', {str(tmp_path / 'out')!r}]\n"
        "sys.exit(main(['reproduce', 'transductive', '--only', 'cora', '--seeds', '1', *out])\n"
        "         + main(['capacity', 'cora', *out]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    told = [line for line in done.stderr.splitlines() if "fcntl" in line]
    assert [line.split(":")[0] for line in told] == ["bignn reproduce", "bignn capacity"]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out" / "runs.jsonl").exists()


def test_without_fcntl_appending_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bignn.lab.study.ledger.fcntl", None)
    with pytest.raises(InputError, match="fcntl"):
        Ledger(tmp_path / "runs.jsonl").append({"seed": 0})
