"""The wheel of this machine: its tag, its contents, and that it predicts where nothing is built.

Deselected by default, since it takes minutes: ``make wheel`` builds the wheel and runs these.
"""

import os
import re
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest
from build_wheel import DIST, ROOT

pytestmark = pytest.mark.wheel


@pytest.fixture(scope="module")
def wheel() -> Path:
    """The newest wheel that this Python can install."""
    found = [path for path in DIST.glob("bignn-*.whl") if _abi(path) in _abis()]
    assert found, "no wheel for this Python in dist/: make wheel"
    return max(found, key=lambda path: path.stat().st_mtime)


def _abis() -> set[str]:
    own = f"cp3{sys.version_info.minor}"
    return {f"{own}-{own}"} | ({"cp312-abi3"} if sys.version_info >= (3, 12) else set())


def _abi(wheel: Path) -> str:
    return "-".join(wheel.stem.split("-")[2:4])


def test_the_tag_is_of_many_linuxes(wheel: Path) -> None:
    platforms = wheel.stem.split("-")[4].split(".")
    machine = os.uname().machine
    assert all(re.fullmatch(rf"manylinux_2_\d+_{machine}", name) for name in platforms), platforms


def test_it_has_the_package_and_one_extension(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    (extension,) = (name for name in names if name.endswith(".so"))
    assert re.fullmatch(r"bignn/_native\.(abi3|cpython-311-\w+-linux-gnu)\.so", extension)
    assert ("abi3" in extension) == ("abi3" in _abi(wheel))
    sources = ROOT / "src"
    expected = {
        path.relative_to(sources).as_posix()
        for kind in ("*.py", "*.pyi", "*.typed", "*.npz", "*.cu", "*.cuh")
        for path in (sources / "bignn").rglob(kind)
    }
    assert expected <= set(names)
    outside = {name for name in names if not name.startswith(("bignn/", "bignn-"))}
    assert not outside
    assert not [name for name in names if "/csrc/" in name or "__pycache__" in name]


def test_it_predicts_in_a_clean_environment_without_a_compiler(wheel: Path, tmp_path: Path) -> None:
    """Dependencies come from where pip finds packages, ours from its file."""
    place = tmp_path / "clean"
    venv.create(place, with_pip=True)
    python, path = str(place / "bin/python"), str(place / "bin")
    # Neither compilers nor the packages of this environment.
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "CC", "CXX"))}
    clean["PATH"] = path

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [python, *arguments], capture_output=True, text=True, env=clean, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    install = ("-m", "pip", "install", "-q", "--disable-pip-version-check")
    run(*install, "--only-binary", ":all:", "numpy>=2.0", "safetensors>=0.5")
    run(*install, "--no-index", str(wheel))
    said = run("-I", str(ROOT / "tools/try_installed.py"))
    assert str(place) in said
    assert "all that run here agree" in said
    assert "backend" in run("-I", "-m", "bignn", "doctor", "--json")
