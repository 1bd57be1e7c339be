"""Torch and MKL are held to the instruction set of the backend that is measured."""

import json
import os
import re
import subprocess
import sys

import pytest
from torch.backends import mkl

from bignn.errors import InputError
from bignn.kernels import native
from bignn.lab.bench import torch_instructions
from bignn.lab.bench.torch_instructions import (
    VARIABLES,
    check_torch,
    limit_of,
    torch_held_to,
)


def test_every_backend_has_a_limit() -> None:
    for backend in (*native.KNOWN_INSTRUCTION_SETS, "avx2-vnni", "neon", "neon-dot"):
        limit = limit_of(backend)
        assert set(limit.variables) <= set(VARIABLES)
        assert limit.capability == limit.capability.upper()
    assert limit_of("avx2").variables == {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
    }
    assert limit_of("avx512").variables == {}


def test_the_environment_is_as_before_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx512")
    monkeypatch.setenv("DNNL_MAX_CPU_ISA", "AVX")  # would count where oneDNN's own is not set
    before = dict(os.environ)
    with torch_held_to("avx2"):
        assert os.environ["ATEN_CPU_CAPABILITY"] == "avx2"
        assert "DNNL_MAX_CPU_ISA" not in os.environ
    assert dict(os.environ) == before
    with pytest.raises(ZeroDivisionError), torch_held_to("avx512"):
        assert not set(VARIABLES) & set(os.environ)
        raise ZeroDivisionError
    assert dict(os.environ) == before
    with torch_held_to(None):
        assert dict(os.environ) == before


def test_another_instruction_set_of_torch_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_instructions, "torch_capability", lambda: "AVX512")
    check_torch("avx512")
    with pytest.raises(InputError, match="'avx2' in a process whose torch uses AVX512; start"):
        check_torch("avx2")
    monkeypatch.setattr(torch_instructions, "torch_capability", lambda: "AVX2")
    check_torch("avx2-vnni")
    with pytest.raises(InputError, match="unset ATEN_CPU_CAPABILITY"):
        check_torch("avx512")


def test_mkl_tells_what_it_runs_on_and_prints_nothing() -> None:
    """In a process of its own: MKL tells it once."""
    code = (
        "from bignn.lab.bench.torch_instructions import mkl_processors\n"
        "print('before')\n"
        "found = mkl_processors()\n"
        "import json, torch\n"
        "print(json.dumps([torch.backends.mkl.is_available(), found, mkl_processors()]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    before, line = done.stdout.splitlines()
    has_mkl, found, again = json.loads(line)
    assert (before, again) == ("before", found)
    assert has_mkl == (found is not None)
    assert found is None or re.fullmatch(r"Intel\(R\) ((?!GHz).)*", found)


@pytest.mark.parametrize("backend", native.supported())
def test_bench_holds_torch_to_the_backend(backend: str) -> None:
    """In a process of its own, since torch has been loaded here; its processes inherit it."""
    arguments = ["bench", "shapes", "--only", "flickr", "--scale", "0.002", "--threads", "1"]
    measures_memory = backend == native.supported()[0]
    arguments += [] if measures_memory else ["--no-memory"]
    done = subprocess.run(
        [sys.executable, "-m", "bignn", *arguments, "--backend", backend, "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(done.stdout)
    (row,) = report["rows"]
    assert row["backend"] == backend
    assert row["torch_capability"] == limit_of(backend).capability
    assert "peak memory of packed on" not in done.stderr  # as where a process failed
    assert ("peak memory of packed" in done.stderr) == measures_memory
    assert (report["mkl"] is not None) == mkl.is_available()
