"""Live graphs on disk: files, journals, and processes that are killed."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
import warnings
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from live_graphs import live_graph, raw_graph, same, some_update
from packed_family import make_chain

import bignn
from bignn import FileError, InputError, LiveGraph, pack_graph
from bignn.errors import WriteError
from bignn.runtime.live import stored


def test_a_saved_graph_opens_with_every_update(tmp_path: Path) -> None:
    path = tmp_path / "g.biglive"
    live = make_chain(["sage", "gcn", "gat"]).live(pack_graph(
        raw_graph(), like=make_chain(["sage", "gcn", "gat"]), order="locality"))  # fmt: skip
    rng = np.random.default_rng(0)
    live.update(remove_nodes=[31])
    live.save(path)
    for turn in range(5):
        live.update(**some_update(rng, live.num_nodes))
        if turn == 2:
            live.save(path)  # starts the journal afresh
            live.update(remove_nodes=[33])
    live.close()
    opened = LiveGraph.open(path)
    assert same(opened, live)
    assert opened.removed.tolist() == [31, 33]
    opened.update(remove_nodes=[35])
    opened.close()
    again = bignn.open(path)
    assert isinstance(again, LiveGraph)
    assert same(again, opened)
    again.close()


def test_a_journal_cut_anywhere_loses_its_last_update_only(tmp_path: Path) -> None:
    path, journal = tmp_path / "g.biglive", tmp_path / "g.biglive.journal"
    live = live_graph()
    live.save(path)
    rng = np.random.default_rng(1)
    live.update(**some_update(rng, live.num_nodes))
    live.close()
    whole = journal.read_bytes()
    once = LiveGraph.open(path)
    once.update(remove_nodes=[39])
    once.close()
    twice = journal.read_bytes()
    for size in (len(whole) + 1, len(whole) + 23, len(whole) + 24, len(twice) - 1):
        journal.write_bytes(twice[:size])
        with pytest.warns(UserWarning, match="was not written to its end; it is dropped"):
            opened = LiveGraph.open(path)
        assert same(opened, live)
        assert journal.read_bytes() == whole
        opened.close()
    # A file system may have given the file its length and not yet its bytes.
    journal.write_bytes(whole + bytes(100))
    with pytest.warns(UserWarning, match="dropped"):
        LiveGraph.open(path).close()
    assert journal.read_bytes() == whole


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    path, journal = tmp_path / "g.biglive", tmp_path / "g.biglive.journal"
    live = live_graph()
    live.save(path)
    first = journal.stat().st_size
    for _ in range(2):
        live.update(**some_update(np.random.default_rng(2), live.num_nodes))
    live.close()
    content = bytearray(journal.read_bytes())
    content[first + 60] ^= 1
    journal.write_bytes(content)
    with pytest.raises(FileError, match=rf"is damaged from byte {first} on"):
        LiveGraph.open(path)
    journal.write_bytes(b"{}\n")
    line = "is no journal of a live graph .*: copy it again, or move it away and make an empty file"
    with pytest.raises(FileError, match=line):
        LiveGraph.open(path)
    journal.unlink()
    with pytest.raises(FileError, match="since the last save: copy it too, or make an empty file"):
        LiveGraph.open(path)
    journal.touch()
    with closing(LiveGraph.open(path)) as opened:
        assert opened.num_nodes == 40


def test_a_damaged_journal_is_cut_as_its_message_says(tmp_path: Path) -> None:
    """The updates before the damage are made, and new ones follow them."""
    path, journal = tmp_path / "g.biglive", tmp_path / "g.biglive.journal"
    live = live_graph()
    live.save(path)
    live.update(remove_nodes=[3])
    good = journal.stat().st_size
    for node in (5, 7):
        live.update(remove_nodes=[node])
    live.close()
    content = bytearray(journal.read_bytes())
    content[good + 60] ^= 1
    journal.write_bytes(content)
    line = rf"is damaged from byte {good} on, and was left as it is: .* \('truncate -s {good}'\)"
    with pytest.raises(FileError, match=line):
        LiveGraph.open(path)
    assert journal.read_bytes() == content
    os.truncate(journal, good)
    with closing(LiveGraph.open(path)) as opened:
        assert opened.removed.tolist() == [3]
        opened.update(remove_nodes=[9])
    with closing(LiveGraph.open(path)) as opened:
        assert opened.removed.tolist() == [3, 9]


def test_an_archive_is_no_live_graph(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.ones(3))
    line = r"is a \.npz or another archive, expected a live graph \(\.biglive\); bignn\.load"
    with pytest.raises(FileError, match=line):
        LiveGraph.open(tmp_path / "mine.npz")
    with pytest.raises(FileError, match=r"does not exist; make one with LiveGraph\.save"):
        LiveGraph.open(tmp_path / "missing.npz")


def test_a_journal_of_another_state_is_refused_and_left(tmp_path: Path) -> None:
    """A backup's file beside a newer journal, and the journal of another live graph."""
    path, journal = tmp_path / "g.biglive", tmp_path / "g.biglive.journal"
    live = live_graph()
    live.save(path)
    backup = path.read_bytes()
    live.update(remove_nodes=[3])
    live.save(path)
    live.update(remove_nodes=[5])
    live.close()
    newer, newer_journal = path.read_bytes(), journal.read_bytes()
    path.write_bytes(backup)
    with pytest.raises(FileError, match="of another save of this one, and was left as it is: put"):
        LiveGraph.open(path)
    assert journal.read_bytes() == newer_journal
    path.write_bytes(newer)
    with closing(LiveGraph.open(path)) as opened:
        assert opened.removed.tolist() == [3, 5]
    other = live_graph()
    other.save(tmp_path / "other.biglive")
    other.update(remove_nodes=[7])
    other.close()
    journal.write_bytes((tmp_path / "other.biglive.journal").read_bytes())
    with pytest.raises(FileError, match="has the updates of another live graph"):
        LiveGraph.open(path)
    journal.write_bytes(b"")  # the way out that the line names
    with closing(LiveGraph.open(path)) as opened:
        assert opened.removed.tolist() == [3]
        opened.update(remove_nodes=[9])
    with closing(LiveGraph.open(path)) as opened:
        assert opened.removed.tolist() == [3, 9]


def test_a_save_that_cannot_start_a_journal_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The journal before goes on, after the part of it that the file has."""
    path, journal = tmp_path / "g.biglive", tmp_path / "g.biglive.journal"
    live = live_graph()
    live.save(path)
    rng = np.random.default_rng(3)
    live.update(**some_update(rng, live.num_nodes))
    absorbed = journal.read_bytes()

    def fail(*_: object) -> None:
        raise WriteError("cannot write: No space left on device")

    monkeypatch.setattr(stored, "start_journal", fail)
    with pytest.raises(WriteError, match="No space left"):
        live.save(path)
    live.update(**some_update(rng, live.num_nodes))
    live.close()
    longer = journal.read_bytes()
    with closing(LiveGraph.open(path)) as opened:
        assert same(opened, live)
        opened.update(remove_nodes=[35])
    with closing(LiveGraph.open(path)) as opened:
        assert opened.removed.tolist() == [35]
    # Another course from the same state on, as after the restoring of a backup.
    changed = bytearray(longer)
    changed[len(absorbed) - 1] ^= 1
    journal.write_bytes(changed)
    with pytest.raises(FileError, match="of another save of this one, and was left as it is"):
        LiveGraph.open(path)
    assert journal.read_bytes() == changed
    # As a process leaves it that is killed between the two writes: the file has all updates.
    journal.write_bytes(absorbed)
    with closing(LiveGraph.open(path)) as opened:
        assert opened.num_nodes == 41
    assert len(journal.read_bytes()) < len(absorbed) < len(longer)


def test_a_live_graph_where_nothing_can_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "g.biglive"
    live = live_graph()
    live.save(path)
    live.close()
    usual = Path.open

    def read_only(file: Path, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        if "+" in mode:
            raise OSError(errno.EROFS, "Read-only file system")
        return usual(file, mode, *arguments, **options)

    monkeypatch.setattr(Path, "open", read_only)
    line = "cannot write '.*journal': Read-only file system; .*copy it and its journal to where"
    with pytest.raises(WriteError, match=line):
        LiveGraph.open(path)


def test_a_live_graph_is_open_once(tmp_path: Path) -> None:
    path = tmp_path / "g.biglive"
    live = live_graph()
    live.save(path)
    code = f"import bignn\nbignn.LiveGraph.open({str(path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "is in use: one process at a time" in done.stderr
    # Nor may another put its own graph there: updates of this one would be lost.
    other = live_graph()
    with pytest.raises(FileError, match="is in use: one process at a time"):
        other.save(path)
    live.update(remove_nodes=[3])
    live.save(path)
    live.close()
    assert LiveGraph.open(path).removed.tolist() == [3]
    other.save(path)
    with pytest.raises(InputError, match=r"ending in \.biglive"):
        live.save(tmp_path / "g.bigraph")
    with pytest.raises(FileError, match=r"does not exist; make one with LiveGraph\.save"):
        LiveGraph.open(tmp_path / "none.biglive")


CHILD = """
import sys, warnings
from contextlib import closing
from pathlib import Path
sys.path[:0] = {paths!r}
warnings.simplefilter("ignore")  # a record that was under way is dropped
import numpy as np
from bignn import LiveGraph
from live_graphs import live_graph, some_update
path = Path(sys.argv[1])
if path.exists():
    live = LiveGraph.open(path)
else:
    live = live_graph()
    live.save(path)
print("open", flush=True)
for number in range(live.num_nodes - 40, 10**6):
    live.update(**some_update(np.random.default_rng(number), live.num_nodes))
    print(number, flush=True)
    if number % 4 == 3:
        live.save(path)
"""


def kill_while_it_updates(path: Path, seconds: float) -> int:
    """Update and save a live graph in a process that is killed; return the last update it made."""
    paths = [str(Path(__file__).parent), str(Path(__file__).parent.parent)]
    with subprocess.Popen(
        [sys.executable, "-c", CHILD.format(paths=paths), str(path)],
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "open\n"
        first = child.stdout.readline()
        time.sleep(seconds)
        os.kill(child.pid, signal.SIGKILL)
        return max(map(int, [first, *child.stdout.read().split()]))


@pytest.mark.parametrize("seed", range(2))
def test_killed_processes_lose_no_update_that_returned(tmp_path: Path, seed: int) -> None:
    """Each process goes on with what the killed one before left, and is killed at any moment."""
    path = tmp_path / "g.biglive"
    for seconds in np.random.default_rng(seed).uniform(0, 0.1, 4):
        acknowledged = kill_while_it_updates(path, seconds)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a record under way is dropped
        opened = LiveGraph.open(path)
    # One more update may be on disk than was acknowledged.
    done = opened.num_nodes - 40
    assert done in (acknowledged + 1, acknowledged + 2)
    expected = live_graph()
    for number in range(done):
        expected.update(**some_update(np.random.default_rng(number), expected.num_nodes))
    assert same(opened, expected)
    fresh = expected.model.predict(expected.packed_graph(), output="logits")
    np.testing.assert_array_equal(opened.predict(output="logits"), fresh)
    opened.close()
