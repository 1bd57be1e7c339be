"""A link that is cut between two hosts, which are network namespaces: needs root and iproute2."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest
import two_hosts


def can_make_hosts() -> bool:
    if os.geteuid() != 0 or not shutil.which("ip") or not shutil.which("tc"):
        return False
    made = subprocess.run(["ip", "netns", "add", "bignn-try"], check=False, capture_output=True)
    subprocess.run(["ip", "netns", "del", "bignn-try"], check=False, capture_output=True)
    return made.returncode == 0


@pytest.mark.skipif(not can_make_hosts(), reason="needs root and network namespaces")
def test_a_link_that_is_cut_ends_both_processes_with_a_line(tmp_path: Path) -> None:
    two_hosts.make_problem(tmp_path, 3000)
    codes, lines, _ = two_hosts.cut_link(tmp_path)
    assert codes == [1, 1]
    assert len(lines) == 2, lines
    for rank, line in enumerate(sorted(lines)):
        assert line.startswith(f"bignn predict: error: process {rank} of 2 lost the others"), line
        assert "did not answer for 5 s" in line
    assert not (tmp_path / "cut.npy").exists()
