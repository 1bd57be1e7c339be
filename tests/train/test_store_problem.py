"""Training from a store: it learns, resumes exactly, and its batches are the graph's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_stores import SHAPE, in_memory, make_store

import bignn
from bignn.config import Sampling, Settings
from bignn.errors import InputError
from bignn.nn import GNN
from bignn.runtime.store import Store
from bignn.runtime.store.pack_features import pack_features
from bignn.runtime.store.predict_store import predict_store
from bignn.train.batches import full_batch
from bignn.train.distributed import current_world
from bignn.train.sampled_batches import SampledBatches
from bignn.train.store_problem import StoreProblem

SETTINGS = Settings(lr=0.01, epochs=4, sampling=Sampling("neighbor", 64, (4, 4)))


def make_model(conv: str = "sage", **options: Any) -> GNN:
    torch.manual_seed(0)
    return GNN(SHAPE.features, 32, 2, SHAPE.classes, conv=conv, binarize="both", **options)  # type: ignore[arg-type]


def test_a_model_learns_and_predicts_the_store(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    model = make_model(norm="batch")
    result = bignn.fit(model, store, replace(SETTINGS, epochs=12), progress=False)
    assert result.test_acc is not None
    assert result.test_acc > 45  # of five classes
    packed = bignn.pack(model)
    assert packed.input_digest == store.stage.digest()
    predict_store(packed, store, tmp_path / "p.npy", progress=False)
    classes = np.load(tmp_path / "p.npy")
    assert (classes == packed.predict(in_memory(store))).all()
    assert 100 * (classes == store.y).mean() > 45


def test_a_model_is_trained_by_its_recipe(tmp_path: Path) -> None:
    """That of a graph with many labels, as this one, is inductive; a store's is not."""
    store, device = make_store(tmp_path / "store"), torch.device("cpu")
    settings = StoreProblem(store, None, device).settings(make_model(), distill=False)
    assert settings.sampling is not None
    assert not settings.inductive
    StoreProblem(store, None, device).prepare(make_model(), settings, current_world(device))


def test_an_interrupted_run_ends_as_one_that_was_not(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    whole, parts = make_model(), make_model()
    expected = bignn.fit(whole, store, SETTINGS, progress=False)
    path = tmp_path / "run.safetensors"

    def stop(epoch: int, *_: float) -> None:
        if epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        bignn.fit(parts, store, SETTINGS, progress=False, checkpoint_path=path, save_every=0,
                  on_epoch=stop)  # fmt: skip
    found = bignn.fit(
        make_model(), store, SETTINGS, progress=False, checkpoint_path=path, resume=True
    )
    assert found.val_loss == expected.val_loss
    assert found.test_acc == expected.test_acc


@pytest.mark.parametrize("conv", ["gcn", "mean-gcn", "sage", "gat"])
def test_batches_are_those_of_the_graph_in_memory(tmp_path: Path, conv: str) -> None:
    store, device = make_store(tmp_path / "store"), torch.device("cpu")
    model = make_model(conv, input_bits="sign", normalize_rows=False)
    problem, world = StoreProblem(store, None, device), current_world(device)
    problem.prepare(model, SETTINGS, world)
    torch.manual_seed(1)
    stored = list(problem.batches(None, model, SETTINGS, world)[0])
    assert SETTINGS.sampling is not None
    torch.manual_seed(1)
    held = list(SampledBatches(SETTINGS.sampling, model, full_batch(in_memory(store), device)))
    assert len(stored) == len(held) == 4
    model.eval()
    for mine, theirs in zip(stored, held, strict=True):
        assert (mine.y == theirs.y).all()
        torch.testing.assert_close(mine.logits(model), theirs.logits(model))


def test_bits_of_any_stage(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    graph = in_memory(store)
    np.save(tmp_path / "x.npy", np.asarray(graph.x))
    pack_features(tmp_path / "x.npy", store.path, input_bits="rotate:2", progress=False)
    model = make_model()
    bignn.fit(model, Store(store.path), replace(SETTINGS, epochs=1), progress=False)
    assert model.config["input_bits"] == "rotate:2"
    packed = bignn.pack(model)
    predict_store(packed, Store(store.path), tmp_path / "p.npy", progress=False)
    assert (np.load(tmp_path / "p.npy") == packed.predict(graph)).all()


def test_what_a_store_cannot_train_is_refused(tmp_path: Path) -> None:
    store = make_store(tmp_path / "store")
    with pytest.raises(InputError, match="'model' must be one with binary features"):
        bignn.fit(_float_model(), store, SETTINGS)
    with pytest.raises(InputError, match="'sampler' must be 'neighbor' to train on a store"):
        bignn.fit(make_model(), store, Settings())
    with pytest.raises(InputError, match="learning from a teacher needs a graph in memory"):
        bignn.fit(make_model(), store, SETTINGS, teacher=make_model())
    (store.path / "labels.json").unlink()
    with pytest.raises(InputError, match="training needs labels and train_idx and val_idx"):
        bignn.fit(make_model(), Store(store.path), SETTINGS)


def _float_model() -> GNN:
    return GNN(SHAPE.features, 32, 2, SHAPE.classes, conv="sage")
