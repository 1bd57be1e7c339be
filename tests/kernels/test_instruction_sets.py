"""What holds between the files of the instruction sets."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from bignn import kernels
from bignn.errors import InputError
from bignn.kernels import native

CSRC = Path(__file__).parents[2] / "src" / "bignn" / "csrc"


def test_this_build_has_known_instruction_sets() -> None:
    assert native.INSTRUCTION_SETS[0] == "portable"
    assert set(native.supported()) <= set(native.INSTRUCTION_SETS)
    assert set(native.INSTRUCTION_SETS) <= set(native.KNOWN_INSTRUCTION_SETS)


def test_kernels_of_another_architecture_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "KNOWN_INSTRUCTION_SETS", (*native.INSTRUCTION_SETS, "abacus"))
    assert "no abacus kernels" in native.why_not("abacus")
    assert native.why_not("portable") == ""
    assert native.why_not("reference") == ""
    with pytest.raises(InputError, match="this build has no abacus kernels"):
        kernels.checked_backend("abacus")


@pytest.mark.parametrize(
    ("prefix", "names"),
    [("", native.INSTRUCTION_SETS), ("aarch64-linux-gnu-", ("portable", "neon", "neon_dot"))],
)
def test_the_linker_shares_nothing_between_instruction_sets(
    prefix: str, names: tuple[str, ...], tmp_path: Path
) -> None:
    """Each file has one symbol, its table: a shared one might be of a CPU that is not this one.

    Compiled without optimisation, so that nothing disappears by being inlined.
    """
    compiler, nm = shutil.which(f"{prefix}g++" if prefix else "c++"), shutil.which(f"{prefix}nm")
    if compiler is None or nm is None:
        pytest.skip(f"needs a C++ compiler ({prefix}g++) and {prefix}nm")
    listed = (CSRC / "instruction_sets.cmake").read_text()
    flags = dict(re.findall(r"^ *add_instruction_set\((\w+)\.cpp\s*([^)]*)\)", listed, re.M))
    assert set(names) <= set(flags)
    for source in (source for source in flags if source.startswith(names)):
        out = tmp_path / f"{source}.o"
        options = ["-std=c++20", "-O0", *flags[source].split()]
        subprocess.run(
            [compiler, *options, "-c", str(CSRC / f"{source}.cpp"), "-o", str(out)], check=True
        )
        shown = subprocess.run(
            [nm, "--demangle", "--extern-only", "--defined-only", str(out)],
            capture_output=True,
            text=True,
            check=True,
        )
        symbols = [line.split(maxsplit=2)[2] for line in shown.stdout.splitlines()]
        assert symbols == [f"bignn::{source}_kernels"]
