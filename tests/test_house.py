"""The rules of the house: imports go down only, the runtime wing needs no torch, one surface."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from conftest import make_arrays

import bignn
from bignn.errors import PACKAGES, how_to_install, missing_extra

SOURCE = Path(bignn.__file__).parent

#: A file may import rooms of a lower floor, and its own room. docs/design.md shows the same plan.
FLOORS = {
    **dict.fromkeys(("errors", "files", "bits", "_native"), 0),
    **dict.fromkeys(("config", "kernels", "graph"), 1),
    **dict.fromkeys(("runtime", "binarize", "ops"), 2),
    **dict.fromkeys(("cost", "nn"), 3),
    **dict.fromkeys(("packing", "loaders", "capacity"), 4),
    "train": 5,
    "lab": 6,
    "cli": 7,
    "__main__": 8,
}
WITHOUT_TORCH = [
    *["errors", "files", "bits", "config", "kernels", "graph", "runtime", "cost", "cli"],
    *["train.recipes", "lab.report"],
]
#: Within a floor, errors < files < ... : the few sideways imports that are meant.
SIDEWAYS = {("files", "errors"), ("bits", "errors")}


def rooms() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


def room_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            if node.module == "bignn":
                found |= {alias.name for alias in node.names}
            elif node.module.startswith("bignn."):
                found.add(node.module.split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {a.name.split(".")[1] for a in node.names if a.name.startswith("bignn.")}
    return found


@pytest.mark.parametrize("path", rooms(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_down_only(path: Path) -> None:
    mine = room_of(path)
    for other in imported_rooms(path) - {mine}:
        allowed = FLOORS[other] < FLOORS[mine] or (mine, other) in SIDEWAYS
        assert allowed, f"{mine} (floor {FLOORS[mine]}) imports {other} (floor {FLOORS[other]})"


@pytest.mark.parametrize("path", rooms(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_the_surface_is_for_users(path: Path) -> None:
    """Below the command line nobody reaches for the public names, which are above all floors."""
    taken = {
        node.attr
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "bignn"
    }
    assert room_of(path) == "cli" or taken <= {"__version__"}, taken


def test_no_relative_imports() -> None:
    for path in rooms():
        for node in ast.walk(ast.parse(path.read_text())):
            assert not (isinstance(node, ast.ImportFrom) and node.level), path


def run_without_torch(code: str) -> subprocess.CompletedProcess[str]:
    block = (
        "import sys; sys.modules.update(torch=None, torch_geometric=None, tqdm=None, scipy=None)\n"
    )
    return subprocess.run(
        [sys.executable, "-c", block + code], capture_output=True, text=True, check=False
    )


def test_the_runtime_wing_works_with_torch_blocked() -> None:
    modules = ", ".join(f"bignn.{name}" for name in WITHOUT_TORCH)
    done = run_without_torch(
        f"import {modules}\n"
        "import numpy as np\n"
        "graph = bignn.load('cora')\n"
        "words = bignn.bits.pack(graph.dense_x() - 0.5)\n"
        "print(bignn.kernels.xnor_matmul(words, words, 1433)[0, 0])\n"
    )
    assert done.stderr == ""
    assert done.stdout.strip() == "1433"


def test_doctor_works_with_torch_blocked() -> None:
    done = run_without_torch("import bignn.cli; sys.exit(bignn.cli.main(['doctor']))")
    assert done.returncode == 0
    assert "<- used" in done.stdout


def test_cost_works_with_torch_blocked() -> None:
    done = run_without_torch(
        "from bignn.cli import main\n"
        "from bignn.train.recipes import RECIPES\n"
        "assert len(RECIPES) == 12\n"
        "sys.exit(max(main(['cost', 'cora', '--model', model]) for model in RECIPES))\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("total") == 12
    assert "249,954,739" in done.stdout  # GCN's and Bi-GCN's cycle operations, as the paper's
    assert "4,669,515" in done.stdout


def test_report_works_with_torch_blocked(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    runs = [
        {
            **{"row": f"cora/{model}", "dataset": "cora", "model": model, "distill": False},
            **{"changes": {}, "seed": seed, "recipe": model, "teachers": 1, "val_loss": 0.7},
            **{"val_acc": 79.0, "test_acc": test, "best_epoch": 3, "epochs": 5, "seconds": 1.0},
            **{"device": "cpu", "machine": "a machine", "version": "0.1.0", "torch": "2.6.0"},
        }
        for model, accuracies in (("gcn", (81.5, 82.25)), ("bi-gcn", (83.0, 84.5)))
        for seed, test in enumerate(accuracies)
    ]
    lines = "".join(json.dumps(run) + "\n" for run in runs)
    (tmp_path / "results" / "runs.jsonl").write_text(lines)
    page = tmp_path / "page.html"
    done = run_without_torch(
        "from bignn.cli import main\n"
        f"sys.exit(main(['report', {str(tmp_path / 'results')!r}, '-o', {str(page)!r}]))\n"
    )
    assert done.returncode == 0, done.stderr
    assert "sections" in done.stdout
    shown = page.read_text()
    assert "81.9 ± 0.5" in shown  # 81.875, deviation 0.53
    assert "83.8 ± 1.1" in shown  # 83.75, deviation 1.06
    assert "p = " in shown


def test_everything_works_without_the_extension(tmp_path: Path) -> None:
    """As where no compiler was found: the NumPy reference serves, and doctor says so."""
    np.savez(tmp_path / "toy.npz", **make_arrays())  # type: ignore[arg-type]
    code = (
        "import sys; sys.modules['bignn._native'] = None\n"
        "from bignn import kernels\n"
        "assert kernels.available_backends() == ['reference']\n"
        "from bignn.cli import main\n"
        "sys.exit(main(['train', 'toy.npz', '--epochs', '5']) or main(['doctor']))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stdout
    assert "The native extension is missing" in done.stdout


def test_what_needs_torch_says_so() -> None:
    done = run_without_torch(
        "import bignn\ntry:\n    bignn.fit\nexcept ImportError as error:\n    print(error)\n"
    )
    assert "pip install '.[train]'" in done.stdout
    done = run_without_torch("import bignn.cli; sys.exit(bignn.cli.main(['train', 'cora']))")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install '.[train]'" in done.stderr


def test_importing_never_imports_torch() -> None:
    code = "import bignn, bignn.cli, sys; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_every_public_name_exists() -> None:
    for name in [*bignn.__all__, "open"]:
        assert getattr(bignn, name) is not None
    assert (
        {"Recipe", "fit", "load_state", "nn", "pack_graph"} <= set(bignn.__all__) <= set(dir(bignn))
    )
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = bignn.nonsense


ROOMS = ["bits", "capacity", "cost", "loaders", "nn"]


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_are_attributes(room: str) -> None:
    code = (
        f"import bignn, sys; print(bignn.{room}.__name__, {room!r} in dir(bignn), "
        "'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    needs_torch = room not in WITHOUT_TORCH
    assert done.stdout.split() == [f"bignn.{room}", "True", str(needs_torch)]


@pytest.mark.parametrize("blocked", [True, False])
def test_all_names_at_once(blocked: bool) -> None:
    """``from bignn import *`` takes what there is, and leaves the builtin ``open`` alone."""
    code = (
        "import builtins, sys\nfrom bignn import *\nassert open is builtins.open\n"
        "print(PackedModel.__name__, cost.__name__, 'fit' in globals())"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    done = run_without_torch(code) if blocked else run
    assert done.stderr == ""
    assert done.stdout.split() == ["PackedModel", "bignn.cost", str(not blocked)]


def test_packages_and_extras_are_those_of_the_project() -> None:
    root = Path(__file__).parent.parent
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = {
        name: some for name, some in project["optional-dependencies"].items() if name != "dev"
    }
    declared = {re.split("[>=]", line)[0]: None for line in project["dependencies"]} | {
        re.split("[>=]", line)[0]: name for name, some in extras.items() for line in some
    }
    assert declared == PACKAGES
    readme = (root / "README.md").read_text()
    assert how_to_install("safetensors") == "pip install ."
    for package in ("safetensors", "torch"):
        assert f"`{how_to_install(package)}`" in readme
    assert all(f"`{extra}`" in readme for extra in ("lab", "parquet"))


@pytest.mark.parametrize("package", sorted(PACKAGES))
def test_a_missing_package_is_one_line(package: str) -> None:
    line = missing_extra("'bignn train'", ImportError("no", name=f"{package}.inner"))
    assert line == (
        f"'bignn train' needs {package}, which is not installed; install it: "
        f"{how_to_install(package)} in the folder of bignn's sources"
    )
    assert missing_extra("it", ImportError("no", name="elsewhere")) is None
