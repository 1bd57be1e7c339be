"""The rules of the house: imports go down only, deployment needs no torch, one public surface."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
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
    **dict.fromkeys(("config", "kernels"), 1),
    "graph": 2,
    **dict.fromkeys(("runtime", "binarize", "ops"), 3),
    **dict.fromkeys(("cost", "nn", "serve"), 4),
    **dict.fromkeys(("packing", "loaders", "capacity"), 5),
    "train": 6,
    "lab": 7,
    "cli": 8,
    "__main__": 9,
}
#: Floors inside the laboratory.
LAB_FLOORS = {
    "report": 0,
    "bench": 1,
    "study": 2,
    **dict.fromkeys(("compare", "paper"), 3),
    "demo": 4,
}
#: Within the lowest floor, the few sideways imports that are meant.
SIDEWAYS = {("files", "errors"), ("bits", "errors")}
MOST_ENTRIES = 19

WITHOUT_TORCH = [
    *["errors", "files", "bits", "config", "kernels", "graph", "runtime", "cost", "cli"],
    *["serve.server", "train.recipes", "lab.report"],
]


def files() -> list[Path]:
    return [path for path in sorted(SOURCE.rglob("*.py")) if path != SOURCE / "__init__.py"]


def parts_of(path: Path) -> list[str]:
    return [part.removesuffix(".py") for part in path.relative_to(SOURCE).parts]


def imported(path: Path) -> set[str]:
    """Every module of ours that a file imports, anywhere in it, without the leading ``bignn.``."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name.removeprefix("bignn.") for name in found if name.startswith("bignn.")}


def test_imports_go_down_only() -> None:
    wrong = []
    for path in files():
        mine, *below = parts_of(path)
        for name in imported(path):
            other, *inner = name.split(".")
            floor = FLOORS.get(other, len(FLOORS))  # a public name of bignn is above all floors
            down = floor < FLOORS[mine] or (mine, other) in SIDEWAYS
            if mine != other:
                if not down:
                    wrong.append(f"{'/'.join(parts_of(path))} imports {other}")
            elif mine == "lab" and inner and below and inner[0] in LAB_FLOORS:
                part, mine_too = inner[0], below[0]
                if part != mine_too and LAB_FLOORS[part] >= LAB_FLOORS[mine_too]:
                    wrong.append(f"{'/'.join(parts_of(path))} imports lab.{part}")
    assert not wrong, wrong


def test_only_the_command_line_imports_the_laboratory() -> None:
    users = {
        parts_of(path)[0]
        for path in files()
        if any(name.split(".")[0] == "lab" for name in imported(path))
    }
    assert users <= {"cli", "lab"}
    assert {part for part in LAB_FLOORS if (SOURCE / "lab" / part).is_dir()} | {"demo"} == {
        path.name.removesuffix(".py")
        for path in (SOURCE / "lab").iterdir()
        if not path.name.startswith("__")
    }


def test_the_top_level_is_small() -> None:
    entries = [
        path.name
        for path in SOURCE.iterdir()
        if not path.name.startswith(("_", ".")) and path.name != "py.typed"
    ]
    assert len(entries) <= MOST_ENTRIES, sorted(entries)
    assert {name.removesuffix(".py") for name in entries} - {"csrc"} <= set(FLOORS)


def test_no_two_classes_share_a_name() -> None:
    places = defaultdict(list)
    for path in files():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append("/".join(parts_of(path)))
    twice = {name: where for name, where in places.items() if len(where) > 1}
    assert not twice, twice


def test_the_surface_is_for_users() -> None:
    """Below the command line nobody uses the public names, which are above all floors."""
    wrong = []
    for path in files():
        taken = {
            node.attr
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute)
            and isinstance(node.value, ast.Name)
            and node.value.id == "bignn"
        }
        if parts_of(path)[0] != "cli" and taken - {"__version__"}:
            wrong.append(f"{'/'.join(parts_of(path))} uses {sorted(taken)}")
    assert not wrong, wrong


def python(code: str, *, torch: bool = True) -> subprocess.CompletedProcess[str]:
    """Runs code in another process, if need be one where packages for training are missing."""
    # As if they were not there: None in sys.modules would confuse SciPy.
    block = (
        "import sys\n"
        "from importlib.machinery import PathFinder\n"
        "found = PathFinder.find_spec\n"
        "missing = ('torch', 'torch_geometric', 'tqdm')\n"
        "PathFinder.find_spec = lambda name, *more: (\n"
        "    None if name in missing else found(name, *more)\n"
        ")\n"
    )
    return subprocess.run(
        [sys.executable, "-c", code if torch else block + code],
        capture_output=True,
        text=True,
        check=False,
    )


def test_deployment_loads_neither_torch_nor_the_laboratory(tmp_path: Path) -> None:
    """Importing bignn and its command line, and the commands that deploy models."""
    from conftest import make_packed_model

    np.savez(tmp_path / "toy.npz", **make_arrays())  # type: ignore[arg-type]
    make_packed_model([20, 8, 2]).save(tmp_path / "toy.bignn")
    (tmp_path / "e.csv").write_text("a,b\n0,1\n")
    (tmp_path / "x.csv").write_text("f\n1\n2\n")
    done = python(
        "import contextlib, io, os, sys\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "import bignn\n"
        "def loaded():\n"
        "    return sorted(name for name in sys.modules\n"
        "                  if name.split('.')[0] in ('torch', 'torch_geometric')\n"
        "                  or name.startswith('bignn.lab'))\n"
        "print('import', loaded())\n"
        "from bignn.cli import main\n"
        "for command in ('predict toy.bignn toy.npz', 'cost cora', 'doctor', 'datasets',\n"
        "                'convert out.npz --edges e.csv --features x.csv'):\n"
        "    with contextlib.redirect_stdout(io.StringIO()):\n"
        "        code = main(command.split())\n"
        "    print(command.split()[0], code, loaded())\n"
    )
    assert done.stderr == ""
    assert done.stdout.splitlines() == [
        "import []",
        *(f"{name} 0 []" for name in ("predict", "cost", "doctor", "datasets", "convert")),
    ]


def test_deployment_works_where_torch_is_not_installed() -> None:
    modules = ", ".join(f"bignn.{name}" for name in WITHOUT_TORCH)
    done = python(
        f"import {modules}\n"
        "graph = bignn.load('cora')\n"
        "words = bignn.bits.pack(graph.dense_x() - 0.5)\n"
        "print(bignn.kernels.xnor_matmul(words, words, 1433)[0, 0])\n"
        "from bignn.cli import main\n"
        "from bignn.train.recipes import RECIPES\n"
        "assert len(RECIPES) == 12\n"
        "sys.exit(max(main(['cost', 'cora', '--model', model]) for model in RECIPES)\n"
        "         or main(['doctor']))\n",
        torch=False,
    )
    assert done.stderr == ""
    assert done.returncode == 0
    assert done.stdout.startswith("1433\n")
    assert done.stdout.count("total") == 12
    assert "249,954,739" in done.stdout  # GCN's and Bi-GCN's cycle operations, as the paper's
    assert "4,669,515" in done.stdout
    assert "<- used" in done.stdout


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
    done = python(
        "from bignn.cli import main\n"
        f"sys.exit(main(['report', {str(tmp_path / 'results')!r}, '-o', {str(page)!r}]))\n",
        torch=False,
    )
    assert done.returncode == 0, done.stderr
    assert "sections" in done.stdout
    shown = page.read_text()
    assert "81.9 ± 0.5" in shown  # 81.875, deviation 0.53
    assert "83.8 ± 1.1" in shown  # 83.75, deviation 1.06
    assert "p = " in shown


def test_everything_works_without_the_extension(tmp_path: Path) -> None:
    """As where no compiler was found: the NumPy reference serves, and doctor reports it."""
    np.savez(tmp_path / "toy.npz", **make_arrays())  # type: ignore[arg-type]
    done = python(
        "import os, sys; sys.modules['bignn._native'] = None\n"
        f"os.chdir({str(tmp_path)!r})\n"
        "from bignn import kernels\n"
        "assert kernels.available_backends() == ['reference']\n"
        "from bignn.cli import main\n"
        "sys.exit(main(['train', 'toy.npz', '--epochs', '5']) or main(['doctor']))\n"
    )
    assert done.returncode == 0, done.stderr
    assert "test accuracy" in done.stdout
    assert "The native extension is missing" in done.stdout


#: Public names that are plain data or arithmetic, and need no torch.
DATA = {"Recipe", "Sampling", "Settings", "cost", "recipe"}


def test_names_that_need_torch_give_the_line_that_installs_it() -> None:
    done = python(
        "import bignn\n"
        "assert isinstance(bignn.recipe('bi-gcn').settings, bignn.Settings)\n"
        f"for name in {sorted(DATA)}:\n"
        "    assert getattr(bignn, name) is not None\n"
        "graph = bignn.load('cora')\n"
        "for use in (lambda: bignn.fit, lambda: bignn.nn, lambda: bignn.to_pyg(graph)):\n"
        "    try:\n        use()\n"
        "    except ImportError as error:\n        print(error)\n"
        "import bignn.cli\n"
        "sys.exit(bignn.cli.main(['train', 'cora']))\n",
        torch=False,
    )
    install = "needs torch, which is not installed; install it: pip install '.[train]' in the"
    lines = [*done.stdout.splitlines(), done.stderr.removeprefix("bignn train: error: ")]
    starts = ("bignn.fit", "bignn.nn", "bignn.to_pyg", "'bignn train'")
    assert len(lines) == len(starts)
    assert all(
        line.startswith(f"{name} {install}") for name, line in zip(starts, lines, strict=True)
    ), lines
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1


def test_every_public_name_exists() -> None:
    for name in [*bignn.__all__, "open"]:
        assert getattr(bignn, name) is not None
    assert (
        {"Recipe", "fit", "load_state", "nn", "pack_graph"} <= set(bignn.__all__) <= set(dir(bignn))
    )
    listed = [name for name in dir(bignn) if not name.startswith("__")]
    assert sorted([*bignn.__all__, "kernels", "open"]) == listed
    assert bignn.open.__name__ == "open"  # as help shows it
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = bignn.nonsense


def test_rooms_are_attributes() -> None:
    done = python(
        "import bignn, sys\n"
        "for room in ('bits', 'cost', 'capacity', 'loaders', 'nn'):\n"
        "    print(getattr(bignn, room).__name__, room in dir(bignn), 'torch' in sys.modules)\n"
    )
    assert done.stdout.splitlines() == [
        "bignn.bits True False",
        "bignn.cost True False",
        *(f"bignn.{room} True True" for room in ("capacity", "loaders", "nn")),
    ]


def test_all_names_at_once() -> None:
    """``from bignn import *`` takes what there is, and leaves the builtin ``open`` alone."""
    code = (
        "import builtins, sys\nfrom bignn import *\nassert open is builtins.open\n"
        "print(PackedModel.__name__, cost.__name__, Recipe.__name__, 'fit' in globals())"
    )
    for torch in (True, False):
        done = python(code, torch=torch)
        assert done.stderr == ""
        assert done.stdout.split() == ["PackedModel", "bignn.cost", "Recipe", str(torch)]


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
    assert all(f"`{extra}`" in readme for extra in ("lab", "parquet", "serve"))


def test_a_missing_package_is_one_line() -> None:
    for package in PACKAGES:
        line = missing_extra("'bignn train'", ImportError("no", name=f"{package}.inner"))
        assert line == (
            f"'bignn train' needs {package}, which is not installed; install it: "
            f"{how_to_install(package)} in the folder of bignn's sources"
        )
    assert missing_extra("it", ImportError("no", name="elsewhere")) is None
