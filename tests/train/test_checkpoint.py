"""Checkpoints: a killed run continues exactly, and a damaged file gets one line."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import make_arrays
from safetensors import safe_open
from safetensors.torch import save_file

import bignn
from bignn.config import BinarizeMode, ModelConfig
from bignn.errors import FileError, InputError
from bignn.graph import Graph, from_arrays
from bignn.nn import GCN, GNN
from bignn.train import checkpoint
from bignn.train.fit import fit
from bignn.train.recipes import Settings

SHORT = Settings(lr=0.01, epochs=9)


def new_model(graph: Graph, seed: int = 0, binarize: BinarizeMode = "both") -> GCN:
    torch.manual_seed(seed)
    return GCN(graph.num_features, 16, 2, graph.num_classes, binarize=binarize)


class KilledError(Exception):
    pass


def train_until_killed(model: torch.nn.Module, graph: Graph, path: Path, **options: Any) -> None:
    """Trains five of nine epochs, with a checkpoint of the fifth."""
    write, count = checkpoint.write, 0

    def write_then_die(*arguments: Any) -> None:
        nonlocal count
        write(*arguments)
        count += 1
        if count == 5:
            raise KilledError

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "write", write_then_die)
        with pytest.raises(KilledError):
            fit(model, graph, SHORT, checkpoint_path=path, save_every=0, progress=False, **options)


def test_a_resumed_run_equals_one_that_never_stopped(graph: Graph, tmp_path: Path) -> None:
    common: dict[str, Any] = {"seed": 1, "progress": False}
    for mode in ("both", "none"):
        straight = new_model(graph, binarize=mode)
        expected = fit(straight, graph, SHORT, **common)
        path = tmp_path / f"{mode}.safetensors"
        train_until_killed(new_model(graph, binarize=mode), graph, path, seed=1)
        model = new_model(graph, seed=99, binarize=mode)  # whatever it starts from is replaced
        resumed = fit(model, graph, SHORT, checkpoint_path=path, resume=True, **common)
        assert replace(resumed, seconds=0) == replace(expected, seconds=0)
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, straight.state_dict()[name]), name
        # A finished run is read, not trained again, and holds only the weights that count.
        other = new_model(graph, binarize=mode)
        again = fit(other, graph, SHORT, checkpoint_path=path, resume=True, **common)
        assert again == resumed
        assert set(checkpoint.read(path)[0]) == {"model"}
        loaded = bignn.load_model(path)
        assert loaded.config == model.config
        assert isinstance(loaded, GCN)
        assert torch.equal(loaded.layers[1].lin.weight, model.layers[1].lin.weight)


def refusal(graph: Graph, path: Path, settings: Settings = SHORT, **options: Any) -> str:
    """The line that refuses to resume."""
    with pytest.raises(FileError) as caught:
        fit(
            new_model(graph),
            graph,
            settings,
            checkpoint_path=path,
            resume=True,
            progress=False,
            **options,
        )
    line = str(caught.value)
    assert line.isprintable()
    assert len(line) < 600
    return line


def test_ctrl_c_saves_the_run(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"

    class Interrupted:
        """Batches of which the third epoch's is interrupted, after its first step."""

        epochs = 0

        def __iter__(self) -> Iterator[Any]:
            self.epochs += 1
            yield bignn.to_pyg(graph)
            if self.epochs == 3:
                raise KeyboardInterrupt

    for every, epochs in ((0.0, 2), (1e9, 1)):
        with pytest.MonkeyPatch.context() as patch, pytest.raises(KeyboardInterrupt):
            patch.setattr("bignn.train.run._COPY_EVERY", every)
            fit(
                *(new_model(graph), graph, SHORT),
                batches=Interrupted(),
                checkpoint_path=path,
                save_every=1e9,
                progress=False,
            )
        assert checkpoint.read(path)[1]["progress"]["epoch"] == epochs
    with pytest.raises(KeyboardInterrupt):  # before the first epoch is over: nothing to save
        batches = Interrupted()
        batches.epochs = 2
        options: dict[str, Any] = {
            "batches": batches,
            "checkpoint_path": tmp_path / "other.safetensors",
        }
        fit(new_model(graph), graph, SHORT, progress=False, **options)
    assert not (tmp_path / "other.safetensors").exists()


def test_resuming_another_run_is_refused(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    fit(new_model(graph), graph, SHORT, checkpoint_path=path, progress=False)
    line = refusal(graph, path, seed=1)
    assert line.startswith(f"cannot resume from '{path}': its 'seed' is 0, this run's is 1; use")
    assert "its 'epochs' is 9, this run's is 60" in refusal(graph, path, replace(SHORT, epochs=60))
    other = from_arrays(make_arrays() | {"y": 1 - make_arrays()["y"]})  # of the same shape
    assert "its 'graph' is" in refusal(other, path)


def change_header(path: Path, out: Path, change: Callable[[Any], object]) -> None:
    """Writes a checkpoint with another header, whose digest is right."""
    parts, header = checkpoint.read(path)
    change(header)
    checkpoint.write(out, parts, header)


def set_in_header(path: Path, out: Path, section: str, name: str, value: object) -> None:
    change_header(path, out, lambda header: header[section].update({name: value}))


def test_progress_that_no_run_has_is_refused(graph: Graph, tmp_path: Path) -> None:
    killed, path = tmp_path / "killed.safetensors", tmp_path / "run.safetensors"
    train_until_killed(new_model(graph), graph, killed)
    for name, value, why in (
        ("epoch", math.nan, "'epoch' must be of type int, got nan"),
        ("epoch", None, "'epoch' must be of type int, got None"),
        ("epoch", 1.5, "'epoch' must be of type int, got 1.5"),
        ("epoch", True, "'epoch' must be of type int, got True"),
        ("epoch", 10**30, "'epoch' must be 0 to 9, got 1000000000"),
        ("epoch", -1, "'epoch' must be 0 to 9, got -1"),
        ("best_epoch", 6, "'best_epoch' must be an epoch up to 5, got 6"),
        ("best_epoch", 0, "'best_epoch' must be an epoch up to 5, got 0"),
        ("best_loss", math.inf, "'best_loss' must be finite, got inf"),
        ("best_loss", math.nan, "'best_loss' must be finite, got nan"),
        ("best_loss", "0\n1", "'best_loss' must be of type float, got 0 1"),
        ("best_acc", 101.0, "'best_acc' must be a percentage, got 101.0"),
        ("seconds", -1.0, "'seconds' must be 0 or more, got -1.0"),
        ("seconds", math.inf, "'seconds' must be 0 or more, got inf"),
        ("left_teacher", 1, "'left_teacher' must be 0 to 0, got 1"),
        ("finished", True, "'finished' must be False here, got True"),
        ("finished", 0, "'finished' must be of type bool, got 0"),
        ("more\n", 1, "'progress' must be an object with ['epoch', "),
    ):
        set_in_header(killed, path, "progress", name, value)
        line = refusal(graph, path)
        assert line.startswith(f"'{path}' is not a whole checkpoint ({why}"), line
    change_header(killed, path, lambda header: header["progress"].pop("epoch"))
    assert "'progress' must be an object with" in refusal(graph, path)


def test_what_a_file_puts_into_an_error_is_short_and_printable(
    graph: Graph, tmp_path: Path
) -> None:
    whole, path = tmp_path / "whole.safetensors", tmp_path / "run.safetensors"
    fit(new_model(graph), graph, SHORT, checkpoint_path=whole, progress=False)
    for section, name, value, why in (
        (
            "config",
            "conv",
            "gcn\nbignn: all is well\x1b[2J",
            r"its 'conv' is 'gcn\nbignn: all is well\x1b[2J'",
        ),
        ("config", "conv\n", 1, "its 'conv' is 1, this run's is absent"),
        ("settings", "lr", "9" * 10**6, "its 'lr' is '9999"),
        ("settings", "sampling", "absent", "its 'sampling' is 'absent', this run's is None"),
    ):
        set_in_header(whole, path, section, name, value)
        assert why in refusal(graph, path)
    set_in_header(whole, path, "config", "conv", "g\nc")
    with pytest.raises(FileError, match=r"does not hold a bignn model \('conv' must be"):
        bignn.load_model(path)
    parts, header = checkpoint.read(whole)
    checkpoint.write(path, {"model": dict(list(parts["model"].items())[1:])}, header)
    with pytest.raises(FileError, match=r"does not hold a bignn model .*Missing key") as caught:
        bignn.load_model(path)
    assert str(caught.value).isprintable()
    for change, why in (
        (lambda h: h.pop("seed"), "its header lacks 'seed'"),
        (lambda h: h.update(seed=True), "the 'seed' of its header is True"),
        (lambda h: h.update({"a\nb": 1}), "its header has an unknown 'a b'"),
    ):
        change_header(whole, path, change)
        assert f"is not a whole checkpoint ({why}" in refusal(graph, path)


def test_parts_that_do_not_fit_are_refused(graph: Graph, tmp_path: Path) -> None:
    killed, path = tmp_path / "killed.safetensors", tmp_path / "run.safetensors"
    train_until_killed(new_model(graph), graph, killed)
    parts, header = checkpoint.read(killed)
    adam = parts["adam"]
    assert adam["0.exp_avg"].ndim == 2
    for changed, why in (
        ({name: parts[name] for name in ("model", "adam", "rng")}, "'last'"),
        ({**parts, "rng": {"cpu": torch.zeros(3, dtype=torch.uint8)}}, "RNG state"),
        ({**parts, "adam": {**adam, "0.exp_avg": torch.zeros(3)}}, "'adam.0.exp_avg' of shape [3]"),
        ({**parts, "adam": {**adam, "99.step": torch.zeros(())}}, "'adam.99.step' of shape []"),
        ({**parts, "adam": {"0.step": adam["0.step"]}}, "'adam.0' is incomplete"),
        ({**parts, "other": {"a": torch.zeros(1)}}, "its tensor 'other.a' is of no known part"),
    ):
        checkpoint.write(path, changed, header)
        line = refusal(graph, path)
        assert "is not a whole checkpoint" in line
        assert why in line


def test_damaged_files_get_one_line(graph: Graph, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    fit(new_model(graph), graph, SHORT, checkpoint_path=path, progress=False)
    data = path.read_bytes()
    with safe_open(path, framework="pt") as opened:
        metadata = opened.metadata()
        tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    flipped = bytearray(data)
    flipped[-1] ^= 1  # in the last tensor
    versioned = data.replace(b'\\"version\\": 2', b'\\"version\\": 1')
    assert versioned != data
    for broken in (b"", data[:100], data[:-1], b"x" * 500, bytes(flipped), versioned):
        path.write_bytes(broken)
        with pytest.raises(FileError, match="is not a whole checkpoint") as caught:
            bignn.load_model(path)
        assert str(caught.value).isprintable()
    deep = {**metadata, "bignn": "[" * 100_000}
    for changed, why in (
        ({"bignn": metadata["bignn"]}, "it has no digest"),
        ({"bignn": metadata["bignn"], "digesu": ""}, "its metadata has an unknown key 'digesu'"),
        ({**metadata, "digest": "0" * 32}, "its digest is not that of its content"),
        ({"digest": ""}, "it has no header"),
        ({**metadata, "bignn": "3"}, "its header is not an object"),
        (deep, "recursion"),
    ):
        save_file(tensors, path, metadata=changed)
        with pytest.raises(FileError, match=f"is not a whole checkpoint .*{why}"):
            bignn.load_model(path)
    strange = json.dumps({"format": "a\nb", "version": [2]})
    save_file(tensors, path, metadata={"bignn": strange})
    with pytest.raises(FileError, match=r"has format 'a\\nb' version \[2\], expected"):
        bignn.load_model(path)
    with pytest.raises(FileError, match="does not exist"):
        bignn.load_model(tmp_path / "none")


def test_version_1_opens_under_todays_names(graph: Graph, tmp_path: Path) -> None:
    """It had no digest, and other names of options and tensors."""
    path = tmp_path / "run.safetensors"
    today = {field.name for field in fields(ModelConfig)}
    options: dict[str, Any] = {"jk": "cat"} if "jk" in today else {"jump": "cat"}
    options["edge_bits"] = None
    torch.manual_seed(0)
    model = GNN(graph.num_features, 8, 2, 2, conv="sage", binarize="both", **options)
    fit(model, graph, SHORT, checkpoint_path=path, progress=False)
    parts, header = checkpoint.read(path)
    for old, new, values in (("jump", "jk", {None: "none"}), ("hops", "K", {})):
        if new in header["config"]:
            value = header["config"].pop(new)
            header["config"][old] = values.get(value, value)
    assert header["config"]["jump"] == "cat"
    assert header["config"].pop("edge_bits") is None  # an option that came later
    header["version"] = 1
    del header["teachers"]
    old_tensors = {}
    for name, tensor in parts["model"].items():
        old_name = name.replace("input_stage.", "input_norm.")
        if old_name.startswith("lin."):
            old_name = f"head.{old_name}"
        old_tensors[f"model.{old_name}"] = tensor
    assert "model.input_norm.mean" in old_tensors
    assert "model.head.lin.weight" in old_tensors
    save_file(old_tensors, path, metadata={"bignn": json.dumps(header)})
    loaded = bignn.load_model(path)
    assert loaded.config == model.config
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name
    result = fit(model, graph, SHORT, checkpoint_path=path, resume=True, progress=False)
    assert result.epochs == 9


def test_the_weights_of_a_users_own_module_are_loaded_into_one(
    graph: Graph, tmp_path: Path
) -> None:
    import torch_geometric.nn as pyg

    path = tmp_path / "run.safetensors"
    x, edges = torch.from_numpy(graph.dense_x()), torch.from_numpy(graph.edge_index)
    for binary in (False, True):

        def new(width: int = 8, binary: bool = binary) -> torch.nn.Module:
            module: torch.nn.Module = pyg.GraphSAGE(graph.num_features, width, 2, graph.num_classes)
            if binary:
                bignn.binarize_(module)
            return module

        model = new()
        fit(model, graph, SHORT, checkpoint_path=path, progress=False)
        again = new()
        assert not torch.equal(next(again.parameters()), next(model.parameters()))
        bignn.load_state(again, path)
        assert again.training
        assert torch.equal(again.eval()(x, edges), model(x, edges))
        if binary:
            packed = bignn.pack(again)
            classes = packed.predict(bignn.pack_graph(graph, like=packed))
            assert (classes == model(x, edges).argmax(dim=1).numpy()).mean() > 0.95
        with pytest.raises(FileError, match=r"not a bignn\.nn\.GNN.*bignn\.load_state\(module, "):
            bignn.load_model(path)
        for other, line in (
            (new(9), r"GraphSAGE: '.*' has shape .*\(and \d+ more\)"),
            (torch.nn.Linear(2, 2), "this Linear: the module's 'weight' is not in the file"),
            (torch.nn.Identity(), r"the file's .* is not in the module"),
        ):
            with pytest.raises(FileError, match=line) as caught:
                bignn.load_state(other, path)
            assert str(caught.value).isprintable()
    with pytest.raises(InputError, match=r"'model' must be a torch\.nn\.Module, got str"):
        bignn.load_state(str(path), path)  # type: ignore[arg-type]


def test_tensors_of_any_type_are_kept(tmp_path: Path) -> None:
    path = tmp_path / "any.safetensors"
    tensors = {
        "half": torch.randn(3, 2).bfloat16(),
        "flags": torch.tensor([True, False]),
        "none": torch.zeros(0, 4),
        "one": torch.tensor(2.5, dtype=torch.float64),
    }
    about = {"config": {}, "settings": {}, "seed": 0, "graph": "", "teachers": None, "progress": {}}
    checkpoint.write(path, {"model": tensors}, about)
    found = checkpoint.read(path)[0]["model"]
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[name], tensor) for name, tensor in tensors.items())


def test_a_failed_write_leaves_the_old_checkpoint(
    graph: Graph, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.safetensors"
    fit(new_model(graph), graph, SHORT, checkpoint_path=path, progress=False)
    before = path.read_bytes()

    def half_written(tensors: object, file: Path, metadata: object) -> None:
        file.write_bytes(b"half")
        raise OSError("disk full")

    monkeypatch.setattr(checkpoint, "save_file", half_written)
    with pytest.raises(OSError, match="disk full"):
        fit(new_model(graph), graph, SHORT, checkpoint_path=path, progress=False)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir()] == ["run.safetensors"]
