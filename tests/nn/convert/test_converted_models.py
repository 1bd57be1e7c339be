"""Converted models in use: training, copies, states, inference, compilation, wrong calls."""

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from pyg_models import CLASSES, NAMES, D, Modules, Own, family, make_data, train
from torch import nn
from torch.nn import functional
from torch_geometric.data import Data

import bignn
from bignn import InputError


@pytest.fixture
def data() -> Data:
    return make_data()


@pytest.mark.parametrize("name", NAMES)
def test_a_plain_loop_trains_pygs_models(name: str, data: Data) -> None:
    model = family(norm=None if name in ("gcn", "gat") else "BatchNorm", dropout=0.2)[name]
    bignn.binarize_(model)
    assert train(model, data, lambda: model(data.x, data.edge_index)) > 0.8


def test_a_plain_loop_trains_models_of_ones_own(data: Data) -> None:
    torch.manual_seed(0)
    own, modules = Own(dropout=0.3), Modules()
    for model in (own, modules):
        bignn.binarize_(model)
    assert train(own, data, lambda: own(data.x, data.edge_index)) > 0.8
    assert train(modules, data, lambda: modules(data)) > 0.8


def test_bignn_fit_trains_it(data: Data) -> None:
    for model in (family()["sage"], Own()):
        bignn.binarize_(model)
        settings = bignn.Settings(lr=0.01, epochs=40)
        result = bignn.fit(model, data, settings, progress=False)
        assert result.test_acc is not None
        assert result.test_acc > 80


def test_a_trained_model_is_a_start(data: Data) -> None:
    """Its binary version knows something before it has trained; an optimiser goes on."""
    torch.manual_seed(0)
    model = pyg.GraphSAGE(D, 64, 2, CLASSES, norm="BatchNorm")
    train(model, data, lambda: model(data.x, data.edge_index))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    bignn.binarize_(model)
    before = model.convs[0].lin_l.weight.detach().clone()
    model.train()
    functional.cross_entropy(model(data.x, data.edge_index), data.y).backward()
    optimizer.step()
    assert not torch.equal(before, model.convs[0].lin_l.weight)


def test_copies_and_states(data: Data) -> None:
    check_copies(lambda: family(norm="BatchNorm")["gat"], data)
    check_copies(Own, data)


def check_copies(make: Callable[[], nn.Module], data: Data) -> None:
    model = make()
    bignn.binarize_(model)
    with pytest.raises(InputError, match="no input statistics yet"):
        model.eval()(data.x, data.edge_index)
    model.train()
    model(data.x, data.edge_index)
    model.eval()
    expected = model(data.x, data.edge_index)
    twin = copy.deepcopy(model)
    assert torch.equal(twin(data.x, data.edge_index), expected)
    other = make()
    bignn.binarize_(other)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other.eval()(data.x, data.edge_index), expected)
    twin.fit_input(2 * data.x + 1)  # type: ignore[operator]
    assert torch.equal(model(data.x, data.edge_index), expected)  # its own statistics
    assert not torch.equal(twin(data.x, data.edge_index), expected)
    thawed = pickle.loads(pickle.dumps(model))
    assert torch.equal(thawed(data.x, data.edge_index), expected)


def test_inference_mode(data: Data) -> None:
    model = Own(dropout=0.5)
    bignn.binarize_(model)
    model.fit_input(data.x)  # type: ignore[operator]
    model.eval()
    expected = model(data.x, data.edge_index)
    with torch.inference_mode():
        assert torch.equal(model(data.x, data.edge_index), expected)
        assert torch.equal(model(data.x.clone(), data.edge_index), expected)
        assert torch.is_inference_mode_enabled()
    assert torch.is_grad_enabled()


@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@torch.no_grad()
def test_compiled_models_compute_the_same(data: Data) -> None:
    for name in ("sage", "gin"):
        model = family()[name]
        bignn.binarize_(model)
        model.fit_input(data.x)
        model.eval()
        compiled: Any = torch.compile(model, backend="eager")
        out = compiled(data.x, data.edge_index)
        assert torch.allclose(out, model(data.x, data.edge_index), atol=1e-4)


def test_bad_calls_say_so(data: Data) -> None:
    model = Own()
    bignn.binarize_(model)
    with pytest.raises(InputError, match="'conv2' was called from outside the model's forward"):
        model.conv2(torch.ones(3, 16), data.edge_index)
    with pytest.raises(InputError, match="name the layer that reads the features"):
        model(None, data.edge_index)
    with pytest.raises(InputError, match="'edge_index' must be a tensor"):
        model(data.x, None)
    # A failed call leaves nothing behind.
    assert not torch.overrides._get_current_function_mode_stack()
    gat = family()["gat"]
    bignn.binarize_(gat)
    with pytest.raises(InputError, match="no 'size'"):
        gat.convs[0](data.x, data.edge_index, size=(3, 3))
    pairs = r"'x' must be a tensor .* for 'convs\.0', got tuple; pairs \(x_s, x_t\) are not"
    with pytest.raises(InputError, match=pairs):
        gat((data.x, data.x), data.edge_index)
