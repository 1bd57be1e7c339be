"""Files are seen whole or not at all."""

from pathlib import Path

import pytest

from bignn.errors import FileError, WriteError
from bignn.files import atomic_path, check_writable, prepare, remove_leftovers


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


def test_a_failure_changes_nothing(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("old")
    with pytest.raises(ZeroDivisionError), atomic_path(target) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_leftovers_of_a_killed_writer_go_and_others_stay(tmp_path: Path) -> None:
    for name in (".a.x1.tmp", ".b.x1.tmp", "a"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path / "a")
    assert sorted(path.name for path in tmp_path.iterdir()) == [".b.x1.tmp", "a"]


def test_what_cannot_be_written_is_said_before_the_work(tmp_path: Path) -> None:
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
    with pytest.raises(FileError, match=r"cannot write '/proc/page.html': its folder takes no"):
        prepare("/proc/page.html")


def test_what_a_killed_check_leaves_is_removed_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the check makes for a moment has a name that the next writer clears away."""
    target = tmp_path / "run.safetensors"
    with monkeypatch.context() as killed:
        killed.setattr(Path, "unlink", lambda *_, **__: None)
        check_writable(target)
    assert len(list(tmp_path.iterdir())) == 1
    remove_leftovers(target)
    assert not list(tmp_path.iterdir())
