"""Files are seen whole or not at all; only regular files are read."""

import errno
import os
import shutil
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import bignn
from bignn.errors import FileError, InputError, WriteError
from bignn.files import (
    atomic_path,
    check_regular_file,
    check_writable,
    checked_path,
    prepare,
    remove_leftovers,
)
from bignn.graph.readers.npz import read_npy
from bignn.graph.readers.tables import read_table


def test_a_reader_of_the_old_file_never_sees_the_new_one(tmp_path: Path) -> None:
    target = tmp_path / "deep" / "file"
    with atomic_path(target) as temporary:
        temporary.write_text("old")
        assert not target.exists()
    with target.open() as reader:
        with atomic_path(target) as temporary:
            temporary.write_text("new and longer")
            assert target.read_text() == "old"
        assert reader.read() == "old"  # renamed over, not written into
    assert target.read_text() == "new and longer"
    assert [path.name for path in target.parent.iterdir()] == ["file"]


def test_a_path_that_no_file_can_have_is_refused(tmp_path: Path) -> None:
    assert checked_path("a/b") == checked_path(Path("a/b")) == Path("a/b")
    long = "x" * 300
    for path, line in (
        (None, "'path' must be a path, got None"),
        (b"a", "'path' must be a path, got b'a'"),
        ([1] * 100, "'path' must be a path, got list"),
        ("", "'path' must be a path, got ''"),
        ("a\0b", r"'path' must be a path that a file system can store, got 'a\x00b'"),
        ("a\ud800", r"'path' must be a path that a file system can store, got 'a\ud800'"),
        (
            f"a/{long}",
            "'path' must be a path with names of at most 255 bytes, 4095 in all, got "
            "'a/xxxxxxxxxxxxxxxxxx...' with a name of 300, 302 in all",
        ),
    ):
        with pytest.raises(InputError) as caught:
            checked_path(path)
        assert str(caught.value) == line
    with pytest.raises(InputError, match=r"4095 in all, got 'a/a/.*, 8000 in all"):
        checked_path("a/" * 4000)
    with pytest.raises(InputError, match=r"^'name_or_path' must be a name such as"):
        bignn.load(long)
    for write in (check_writable, prepare, lambda path: atomic_path(path).__enter__()):
        with pytest.raises(InputError, match="'path' must be a path with names of at most 255"):
            write(tmp_path / long)
        with pytest.raises(WriteError, match=r"'x{20}\.\.\.': its name has 250 bytes, 241 at most"):
            write(tmp_path / long[:250])
    check_writable(tmp_path / long[:241])


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """A pipe would block the reader, and /dev/zero has no end."""
    pipe, regular = tmp_path / "pipe.npz", tmp_path / "file"
    os.mkfifo(pipe)
    regular.touch()
    (tmp_path / "link").symlink_to(regular)
    assert check_regular_file(tmp_path / "link", "a file") == tmp_path / "link"
    for path, line in (
        (pipe, f"'{pipe}' is a pipe; give a .npz file"),
        ("/dev/zero", "'/dev/zero' is a device; give a .npz file"),
        (tmp_path, f"'{tmp_path}' is a folder; give a .npz file"),
        (tmp_path / "none", f"'{tmp_path / 'none'}' does not exist; make it"),
        (regular / "none", f"'{regular / 'none'}' does not exist; make it"),
    ):
        with pytest.raises(FileError) as caught:
            check_regular_file(path, "a .npz file", "make it")
        assert str(caught.value) == line
    loop = tmp_path / "loop"
    loop.symlink_to("loop")
    with pytest.raises(FileError, match=f"cannot read '{loop}': Too many levels of symbolic links"):
        check_regular_file(loop, "a file")
    for read, what in ((read_npy, "a .npy file"), (read_table, "a table in CSV, TSV or Parquet")):
        with pytest.raises(FileError, match=f"is a pipe; give {what}"):
            read(pipe)
    (tmp_path / "zero.npz").symlink_to("/dev/zero")
    for path, kind in ((pipe, "a pipe"), (tmp_path / "zero.npz", "a device")):
        with pytest.raises(FileError, match=f"is {kind}; give a .npz file"):
            bignn.load(path)


def test_a_failure_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_path(target) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_links_are_followed_and_pipes_refused(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    link, target = tmp_path / "link.csv", tmp_path / "real" / "file.csv"
    link.symlink_to("real/file.csv")
    for content in ("first", "second"):  # the target does not exist at first
        prepare(link)
        with atomic_path(link) as temporary:
            temporary.write_text(content)
        assert link.is_symlink()
        assert target.read_text() == content
    assert [path.name for path in target.parent.iterdir()] == ["file.csv"]
    loop, pipe = tmp_path / "loop", tmp_path / "pipe.csv"
    loop.symlink_to("loop")
    os.mkfifo(pipe)
    for path, why in (
        (pipe, "it is a pipe; give a file name"),
        (Path("/dev/null"), "it is a device; give a file name"),
        (loop, "its links lead nowhere; give a file name"),
    ):
        for write in (check_writable, prepare, lambda path: atomic_path(path).__enter__()):
            with pytest.raises(WriteError) as caught:
                write(path)
            assert str(caught.value) == f"cannot write '{path}': {why}"
        assert path.is_symlink() or not path.is_file()


def test_leftovers_of_a_killed_writer_go_and_others_stay(tmp_path: Path) -> None:
    others = [".a.x1.tmp", ".b.x1y2z3_0.tmp", "a"]
    for name in (".a.x1y2z3_0.tmp", *others):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path / "a")
    assert sorted(path.name for path in tmp_path.iterdir()) == others


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileError, match="it is a folder"):
        prepare(tmp_path)
    with pytest.raises(FileError, match="cannot write"):
        prepare(tmp_path / "file" / "below")


def test_a_check_makes_nothing_and_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    check_writable(tmp_path / "a" / "b" / "page.html")
    assert list(tmp_path.iterdir()) == []
    prepare(tmp_path / "a" / "b" / "page.html")
    assert (tmp_path / "a" / "b").is_dir()
    (tmp_path / "file").write_text("")
    for inside in ("file/page.html", "file/deep/er/page.html"):
        with pytest.raises(WriteError, match=r"'.*/file' is a file; give a folder$"):
            check_writable(tmp_path / inside)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="no folder that takes no files")
def test_a_folder_that_takes_no_files_is_found_out_before_the_work() -> None:
    with pytest.raises(FileError, match=r"'/proc/page.html': no file can be made in '/proc'"):
        prepare("/proc/page.html")


def test_what_a_killed_check_leaves_is_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the check makes for a moment has a name that the next writer clears away."""
    target = tmp_path / "run.safetensors"
    with monkeypatch.context() as killed:
        killed.setattr(shutil, "rmtree", lambda *_, **__: None)
        check_writable(target)
    assert len(list(tmp_path.iterdir())) == 1
    remove_leftovers(target)
    assert not list(tmp_path.iterdir())


def test_leftovers_of_another_name_are_left_alone(tmp_path: Path) -> None:
    with atomic_path(tmp_path / "run.v2") as temporary:
        temporary.write_text("kept")
        remove_leftovers(tmp_path / "run")
    assert (tmp_path / "run.v2").read_text() == "kept"


WRITER = """
import os, sys
from pathlib import Path
from bignn.files import atomic_path

with atomic_path(sys.argv[1]) as temporary:
    Path(f"{temporary}.new").write_text("whole")
    os.replace(f"{temporary}.new", temporary)  # as safetensors does
    print(temporary, flush=True)
    sys.stdin.read()
"""


def test_a_live_writers_file_stays_and_a_killed_writers_goes(tmp_path: Path) -> None:
    """With two real processes: one writes, this one removes leftovers of the same path."""
    target = tmp_path / "run.safetensors"
    for killed in (False, True):
        target.unlink(missing_ok=True)
        with subprocess.Popen(
            [sys.executable, "-c", WRITER, str(target)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as writer:
            assert writer.stdout is not None
            temporary = Path(writer.stdout.readline().strip())
            remove_leftovers(target)
            assert temporary.read_text() == "whole"
            if killed:
                writer.kill()
            writer.communicate()
        if killed:
            assert temporary.exists()
            remove_leftovers(target)
        assert [path.name for path in tmp_path.iterdir()] == ([] if killed else [target.name])
        assert (writer.returncode == 0) == (not killed)


def test_writers_and_removers_of_leftovers_at_once(tmp_path: Path) -> None:
    """As of several processes that train one model: the leader removes leftovers, all check."""
    target = tmp_path / "run.safetensors"
    done = threading.Event()

    def remove_all_the_time() -> None:
        while not done.is_set():
            remove_leftovers(target)

    remover = threading.Thread(target=remove_all_the_time)
    remover.start()
    try:
        for number in range(200):
            check_writable(target)
            with atomic_path(target) as temporary:
                temporary.write_text(str(number))
            assert target.read_text() == str(number)
    finally:
        done.set()
        remover.join()
    assert list(tmp_path.iterdir()) == [target]


def test_a_full_disk_is_said_with_the_file(tmp_path: Path) -> None:
    target = tmp_path / "a.npz"
    target.write_text("old")
    full = pytest.raises(WriteError, match=r"cannot write '.*a\.npz': No space left on device")
    with full, atomic_path(target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_tensors_that_do_not_fit_the_disk_get_one_line(tmp_path: Path) -> None:
    """A checkpoint and a packed model, by a limit on the size of files in another process."""
    program = (
        "import resource, signal, sys, numpy as np, torch\n"
        "from bignn.train import checkpoint\n"
        "from bignn.errors import WriteError\n"
        "from bignn.runtime import tensors\n"
        "path = sys.argv[1]\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))\n"
        "for write in (\n"
        "    lambda: checkpoint.write(path, {'model': {'w': torch.zeros(9999)}}, {}),\n"
        "    lambda: tensors.write(path, {'w': np.zeros(9999)}, {}),\n"
        "):\n"
        "    try:\n        write()\n    except WriteError as error:\n        print(error)\n"
    )
    target = tmp_path / "a.bin"
    done = subprocess.run(
        [sys.executable, "-c", program, str(target)], capture_output=True, text=True, check=True
    )
    lines = done.stdout.splitlines()
    assert [line.startswith(f"cannot write '{target}': ") for line in lines] == [True, True]
    assert not list(tmp_path.iterdir())


def test_names_are_flushed_after_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A power failure must not take back the name of a file that was written."""
    flushed: list[bool] = []

    def fsync(handle: int) -> None:
        flushed.append(stat.S_ISDIR(os.fstat(handle).st_mode))

    monkeypatch.setattr(os, "fsync", fsync)
    with atomic_path(tmp_path / "a") as file:
        file.write_text("x")
    assert flushed == [False, True]
