"""Without a working compiler the package still installs, as pure Python."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def test_a_broken_compiler_gives_a_working_pure_package(tmp_path: Path) -> None:
    source = tmp_path / "source"
    kept_out = shutil.ignore_patterns(".*", "build", "dist", "runs", "__pycache__", "tests", "*.so")
    shutil.copytree(ROOT, source, ignore=kept_out)
    target = tmp_path / "installed"
    install = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run(
        [*install, "--disable-pip-version-check", "--target", str(target), str(source)],
        check=True,
        env=os.environ | {"CXX": "/bin/false"},
    )
    assert not list(target.glob("bignn/_native*.so"))
    code = "import bignn, bignn.kernels; print(bignn.__file__, bignn.kernels.available_backends())"
    # -S: the editable install's import hooks must not answer instead.
    done = subprocess.run(
        [
            sys.executable,
            "-S",
            "-c",
            f"import sys; sys.path[:0] = {[str(target), *_site()]!r}; {code}",
        ],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert str(target) in done.stdout
    assert "['reference']" in done.stdout


def _site() -> list[str]:
    """The folder of packages, by way of NumPy's."""
    import numpy as np

    return [str(Path(np.__file__).parent.parent)]
