"""The training loop: it learns, repeats itself, and refuses what it cannot train."""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import make_arrays

import bignn
from bignn.config import BinarizeMode, Sampling
from bignn.errors import InputError
from bignn.graph import Graph, from_arrays
from bignn.nn import GCN
from bignn.train.batches import Batch, full_batch, reachable
from bignn.train.fit import fit
from bignn.train.recipes import CONVERTED, RECIPES, Settings, recipe, settings_for
from bignn.train.run import TrainingRun

QUICK = Settings(lr=0.01, epochs=60, patience=60)


def new_model(graph: Graph, seed: int = 0, binarize: BinarizeMode = "both") -> GCN:
    torch.manual_seed(seed)
    return GCN(graph.num_features, 16, 2, graph.num_classes, binarize=binarize, dropout=0.4)


def test_every_kind_of_model_learns(graph: Graph) -> None:
    """Ours in every mode, and a user's own module on a PyG ``Data``."""
    import torch_geometric.nn as pyg

    modes: list[BinarizeMode] = ["none", "features", "weights", "both"]
    models = [*(new_model(graph, binarize=mode) for mode in modes)]
    for model in (*models, pyg.GCN(graph.num_features, 16, 2, graph.num_classes)):
        result = bignn.fit(model, bignn.to_pyg(graph), QUICK, progress=False)
        assert result.test_acc is not None
        assert result.test_acc >= 80
        assert not model.training


def test_the_same_seed_gives_the_same_weights_and_another_does_not(graph: Graph) -> None:
    def trained(seed: int) -> tuple[bignn.FitResult, torch.Tensor]:
        model = new_model(graph)
        result = fit(model, graph, QUICK, seed=seed, progress=False)
        return replace(result, seconds=0), model.layers[0].lin.weight.detach()

    (first, weights), (second, again), (_, other) = trained(3), trained(3), trained(4)
    assert first == second
    assert torch.equal(weights, again)
    assert not torch.equal(weights, other)


def test_the_callers_random_numbers_are_left_alone(graph: Graph) -> None:
    model = new_model(graph)
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    fit(model, graph, replace(QUICK, epochs=3), progress=False)
    assert torch.equal(torch.rand(3), expected)


def test_the_best_epoch_is_the_first_of_the_lowest_loss_or_the_highest_accuracy(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    scores = [(0.9, 50.0), (0.5, 60.0), (0.6, 95.0), (0.4, 55.0), (0.7, 95.0), (0.4, 94.0)]
    for settings, best in (
        (Settings(epochs=50, patience=7), (4, 0.4, 55.0)),
        (Settings(epochs=50, patience=7, select_by="accuracy"), (3, 0.6, 95.0)),
    ):
        remaining = iter(scores)
        monkeypatch.setattr(
            TrainingRun, "_totals", lambda run, *parts, r=remaining: next(r, (0.8, 70.0))
        )
        result = fit(new_model(graph), graph, settings, progress=False)
        assert (result.best_epoch, result.val_loss, result.val_acc) == best
        assert result.epochs == result.best_epoch + 7
    with pytest.raises(InputError, match="'select_by' must be one of"):
        Settings(select_by="test")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'leave_teacher' must be True or False, got 'no'"):
        Settings(leave_teacher="no")  # type: ignore[arg-type]


def test_on_epoch_is_called_after_every_epoch(graph: Graph) -> None:
    calls: list[tuple[int, float, float]] = []
    settings = Settings(epochs=4)
    result = fit(
        new_model(graph), graph, settings, progress=False, on_epoch=lambda *e: calls.append(e)
    )
    assert [epoch for epoch, _, _ in calls] == [1, 2, 3, 4]
    assert min((loss, accuracy) for _, loss, accuracy in calls) == (result.val_loss, result.val_acc)


def test_the_model_ends_with_the_weights_of_its_best_epoch(graph: Graph) -> None:
    model = new_model(graph)
    result = fit(model, graph, Settings(lr=0.05, epochs=500, patience=10), progress=False)
    assert result.epochs == result.best_epoch + 10 < 500
    whole = full_batch(graph, torch.device("cpu"))
    nodes = torch.from_numpy(graph.val_idx)
    with torch.no_grad():
        logits = model(whole.x, whole.edge_index)
    loss = float(torch.nn.functional.cross_entropy(logits[nodes], whole.y[nodes]))
    assert math.isclose(loss, result.val_loss, rel_tol=1e-5)


def test_training_on_what_is_reachable_is_training_on_the_whole_graph() -> None:
    """The same loss and gradients, from fewer nodes; batch norm needs them all."""
    few = {"train_idx": np.arange(4), "val_idx": np.array([5]), "test_idx": np.array([6])}
    graph = from_arrays(make_arrays(300, 12) | few)
    for mode in ("none", "features", "weights", "both"):
        torch.manual_seed(0)
        model = GCN(12, 8, 2, 2, dropout=0.0, binarize=mode)
        whole = full_batch(graph, torch.device("cpu"))
        assert isinstance(whole.x, torch.Tensor)
        model.fit_input(whole.x)
        part = reachable(whole, model)
        assert 4 < len(part.y) < 300
        gradients = []
        for batch in (whole, part):
            model.zero_grad()
            logits = batch.logits(model)[batch.loss_nodes]
            torch.nn.functional.cross_entropy(logits, batch.y[batch.loss_nodes]).backward()
            gradients.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
        for mine, other in zip(*gradients, strict=True):
            assert torch.allclose(mine, other, atol=1e-6)
    normed = GCN(12, 8, 2, 2, norm="batch")
    assert reachable(whole, normed) is whole
    assert reachable(whole, torch.nn.Linear(1, 1)) is whole


def test_custom_batches_are_what_is_trained_on(graph: Graph) -> None:
    seen = []

    class Twice:
        def __iter__(self):  # type: ignore[no-untyped-def]
            whole = full_batch(graph, torch.device("cpu"))
            for half in whole.loss_nodes.chunk(2):
                seen.append(len(half))
                yield replace(whole, loss_nodes=half)

    result = fit(
        new_model(graph), graph, replace(QUICK, epochs=30), batches=Twice(), progress=False
    )
    assert len(seen) == 60
    assert result.val_acc >= 70
    assert isinstance(next(iter(Twice())), Batch)


def test_what_cannot_be_trained_is_refused_with_a_reason(graph: Graph) -> None:
    arrays = make_arrays()
    del arrays["val_idx"]
    with pytest.raises(InputError, match=r"training needs \['val_idx'\]"):
        fit(new_model(graph), from_arrays(arrays), QUICK)
    with pytest.raises(InputError, match="'device' must be 'cpu', 'cuda' or 'cuda:N', got 'tpu'"):
        fit(new_model(graph), graph, QUICK, device="tpu")
    with pytest.raises(InputError, match=r"training diverged .* lower 'lr'"):
        fit(new_model(graph, binarize="none"), graph, Settings(lr=1e30, epochs=50), progress=False)
    for bad in (
        {"beta1": 1.0},
        {"last_layer_lr": 0.0},
        {"lr": 0.0},
        {"lr": math.nan},
        {"weight_decay": -1.0},
        {"epochs": 0},
        {"patience": 0},
    ):
        with pytest.raises(InputError, match=f"'{next(iter(bad))}' must be"):
            Settings(**bad)


def test_bad_arguments_of_fit_name_themselves(graph: Graph) -> None:
    model = new_model(graph)
    for batches, message in ((iter([]), "an iterator"), ([], "at least one batch per epoch")):
        with pytest.raises(InputError, match=message):
            fit(model, graph, QUICK, batches=batches, progress=False)
    with pytest.raises(InputError, match=r"'graph' must be a bignn\.Graph or a PyG Data"):
        fit(model, "cora")
    changes: dict[str, Any]
    for changes, message in (
        ({"seed": -1}, "'seed' must be a whole number"),
        ({"seed": 1.5}, "'seed' must be a whole number"),
        ({"seed": True}, "'seed' must be a whole number"),
        ({"resume": True}, "'checkpoint_path' must be given"),
        ({"checkpoint_path": "k.txt"}, "'checkpoint_path' must be a file name ending in .safete"),
        ({"save_every": math.nan}, "'save_every' must be 0 seconds or more"),
    ):
        with pytest.raises(InputError, match=message):
            fit(model, graph, QUICK, **changes)


class Odd(torch.nn.Linear):
    def forward(self, x: torch.Tensor, edge_index: object) -> Any:  # type: ignore[override]
        return (super().forward(x),)


class Demanding(torch.nn.Linear):
    def forward(  # type: ignore[override]
        self, x: torch.Tensor, edge_index: object, edge_weight: object, more: object
    ) -> Any:
        return super().forward(x)


def test_models_that_do_not_fit_the_graph_are_refused(graph: Graph) -> None:
    weighted = from_arrays(make_arrays() | {"edge_weight": np.ones(graph.num_edges)})
    with pytest.raises(InputError, match=r"forward takes 'more', which the graph does not have"):
        fit(Demanding(20, 2), weighted, QUICK)
    with pytest.raises(InputError, match=r"returns a tensor of logits .* got tuple"):
        fit(Odd(20, 2), graph, QUICK)
    with pytest.raises(InputError, match=r"an output per class \(2\), got 1"):
        fit(GCN(20, 8, 2, 1), graph, QUICK)
    with pytest.raises(InputError, match=r"'model' must be a torch\.nn\.Module, got str"):
        fit("gcn", graph)  # type: ignore[arg-type]
    unlabelled = from_arrays({k: v for k, v in make_arrays().items() if k in ("x", "edge_index")})
    with pytest.raises(InputError, match="training needs labels 'y'"):
        recipe("bi-gcn").build(unlabelled)


def test_a_single_layer_trains_and_the_last_rate_is_scaled(graph: Graph) -> None:
    model = GCN(20, 8, 1, 2, binarize="both")
    before = model.layers[0].lin.weight.detach().clone()
    fit(model, graph, Settings(lr=0.01, last_layer_lr=1e-9, epochs=3), progress=False)
    assert torch.allclose(model.layers[0].lin.weight, before, atol=1e-6)


def test_graphs_with_odd_parts_train(graph: Graph) -> None:
    arrays = make_arrays()
    no_edges = from_arrays(arrays | {"edge_index": np.zeros((2, 0), dtype=np.int64)})
    loops = from_arrays(arrays | {"edge_index": np.array([[0, 0, 1, 2], [0, 0, 1, 3]])})
    no_test = {key: value for key, value in arrays.items() if key != "test_idx"}
    bare = {"x": np.zeros((60, 1)), "train_idx": np.array([0]), "val_idx": np.array([1])}
    one = from_arrays(no_test | bare)
    for odd in (no_edges, loops, one):
        result = fit(new_model(odd), odd, replace(QUICK, epochs=5), progress=False)
        assert math.isfinite(result.val_loss)
    assert result.test_acc is None


def test_recipes() -> None:
    assert list(RECIPES) == [
        *["gcn", "bi-gcn-f", "bi-gcn-w", "bi-gcn", "gat", "bi-gat", "sage", "bi-sage", "saint"],
        *["bi-saint", "sgc", "fastgcn"],
    ]
    changed = recipe("gcn", hidden_channels=7, lr=0.5, patience=None)
    assert (changed.hidden_channels, changed.settings.lr, changed.settings.patience) == (
        7,
        0.5,
        100,
    )
    with pytest.raises(InputError, match=r"'model' must be one of .* got 'gin'"):
        recipe("gin")
    assert settings_for(GCN(3, 3, 2, binarize="both")) == RECIPES["bi-gcn"].settings
    assert settings_for(torch.nn.Linear(1, 1)) == Settings()
    for binarize, expected in (("none", Settings()), ("both", CONVERTED)):
        converted = torch.nn.Sequential(torch.nn.Linear(20, 2))
        bignn.binarize_(converted, binarize=binarize)  # type: ignore[arg-type]
        assert settings_for(converted) == expected


def test_a_dictionary_changes_the_settings_that_suit_the_model(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Settings] = []

    def note(run: TrainingRun, *_: object) -> Iterator[None]:
        seen.append(run.settings)
        return iter(())

    monkeypatch.setattr(TrainingRun, "epochs", note)
    monkeypatch.setattr(TrainingRun, "result", lambda run: None)
    model = new_model(graph)
    fit(model, graph, {"epochs": 7}, progress=False)
    assert seen == [replace(settings_for(model, graph), epochs=7)]
    assert seen[0].lr == RECIPES["bi-gcn"].settings.lr
    for wrong, said in (
        ({"epoch": 3}, "did you mean 'epochs'"),
        (3, "int"),
        ({"lr": -1.0}, "'lr' must be"),
    ):
        with pytest.raises(InputError, match=said):
            fit(model, graph, wrong, progress=False)  # type: ignore[arg-type]


def test_small_graphs_train_on_one_torch_thread(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = set()

    class Watching(bignn.nn.GCN):
        def forward(self, *inputs: Any) -> torch.Tensor:
            seen.add(torch.get_num_threads())
            out: torch.Tensor = super().forward(*inputs)
            return out

    model = Watching(graph.num_features, 4, 2, graph.num_classes)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        for small, expected in ((10**6, 1), (1, 3)):
            monkeypatch.setattr("bignn.train.fit._MAX_NODES_ON_ONE_THREAD", small)
            seen.clear()
            fit(model, graph, Settings(epochs=2), progress=False)
            assert torch.get_num_threads() == 3
            assert seen == {expected}
    finally:
        torch.set_num_threads(before)


def test_progress_is_printed_in_lines_without_a_terminal(
    graph: Graph, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bignn.train.batch_lines.REPORT_EVERY", 0.0)
    for progress in (True, False):
        model = bignn.nn.GCN(graph.num_features, 4, 2, graph.num_classes)
        bignn.fit(model, graph, bignn.Settings(epochs=3), seed=7, progress=progress)
        lines = capsys.readouterr().err.splitlines()
        assert [line.split(",")[0] for line in lines] == (
            ["toy seed 7: epoch 1", "toy seed 7: epoch 2"] if progress else []
        )


def test_batches_of_a_long_epoch_are_counted(
    graph: Graph, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bignn.train.batch_lines.REPORT_EVERY", 0.0)
    model = bignn.nn.GCN(graph.num_features, 4, 2, graph.num_classes)
    sampling = Sampling("neighbor", batch_size=8, fan_outs=(2, 2))  # of 20 training nodes
    bignn.fit(model, graph, bignn.Settings(epochs=1, sampling=sampling), seed=7)
    lines = capsys.readouterr().err.splitlines()
    # The last batch has none: what follows it has.
    assert lines == [f"toy seed 7: epoch 1, batch {number} of 3" for number in (1, 2)]


def test_a_change_that_no_recipe_has_is_refused() -> None:
    with pytest.raises(InputError, match=r"'changes' must be some of .*did you mean 'epochs'\?"):
        recipe("bi-gcn", epoch=3)
