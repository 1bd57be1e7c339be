"""Running statistics before a sign: they follow the weights, and are those of one value."""

import pickle
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from pyg_models import CLASSES, D, make_data
from torch import Tensor, nn
from torch_geometric.data import Data

import bignn
from bignn.nn.convert.center import Center, FollowWeights, ForwardCount


@pytest.fixture
def data() -> Data:
    return make_data()


def train(model: nn.Module, data: Data, epochs: int = 20) -> Tensor:
    """Train in a plain loop; return the last outputs in training, of the weights before."""
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    out = torch.empty(0)
    for _ in range(epochs):
        optimizer.zero_grad()
        out = model(data.x, data.edge_index)
        nn.functional.cross_entropy(out, data.y).backward()
        optimizer.step()
    return out


class Repeated(nn.Module):
    """One convolution that is called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = pyg.GCNConv(D, 32), pyg.GCNConv(32, 32)
        self.lin = nn.Linear(32, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index)
        for _ in range(3):
            x = self.conv2(x.relu(), edge_index)
        out: Tensor = self.lin(x)
        return out


def test_a_layer_that_is_called_repeatedly_is_not_centred(data: Data) -> None:
    torch.manual_seed(0)
    model = Repeated()
    asked = str(bignn.binarize_(Repeated(), center=True))
    assert "calls 'conv2' more than once, so its input is centred by averages" in asked
    report = bignn.binarize_(model)
    assert "forward calls 'conv2' more than once" in str(report)
    assert not hasattr(model.conv2, "center")
    assert hasattr(model.lin, "center")
    train(model, data)
    in_training = model(data.x, data.edge_index)
    model.eval()
    # The statistics are those of the same weights now, but that their variance is unbiased.
    torch.testing.assert_close(model(data.x, data.edge_index), in_training, rtol=0.02, atol=0.02)
    result = bignn.fit(model, data, {"epochs": 3}, progress=False)
    right = model(data.x, data.edge_index).argmax(dim=1) == data.y
    assert result.val_acc == pytest.approx(100 * right[data.val_mask].float().mean().item())
    expected = model(data.x, data.edge_index).argmax(dim=1)
    assert np.array_equal(bignn.pack(model).predict(data), expected)


class Untraceable(Repeated):
    """The same, with a branch that depends on numbers."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return super().forward(-x if x.sum() > 1e9 else x, edge_index)


def test_what_is_called_repeatedly_shows_while_it_runs(data: Data) -> None:
    torch.manual_seed(0)
    model = Untraceable()
    report = bignn.binarize_(model)
    assert "cannot be followed" in str(report)
    with pytest.warns(UserWarning, match="calls 'conv2' more than once, so its input is not cent"):
        train(model, data)
    in_training = model(data.x, data.edge_index)
    model.eval()
    expected = model(data.x, data.edge_index)
    torch.testing.assert_close(expected, in_training, rtol=0.02, atol=0.02)
    # The state alone tells a new model that these values pass as they are.
    other = Untraceable()
    bignn.binarize_(other)
    other.load_state_dict(model.state_dict())
    torch.testing.assert_close(other.eval()(data.x, data.edge_index), expected)


def test_calls_of_parts_alone_are_not_calls_of_one_forward(data: Data) -> None:
    model = Untraceable()
    bignn.binarize_(model, center=True)
    center = model.lin.center
    assert isinstance(center, Center)
    with pytest.warns(UserWarning, match="calls 'conv2' more than once"):
        model(data.x, data.edge_index)  # which is over
    for _ in range(3):  # as a model's own encode() would
        center(torch.randn(120, 32))
    assert center.momentum == 1.0


def test_threads_have_calls_of_their_own() -> None:
    norm = Center(3, forwards=(forwards := ForwardCount()))
    both = threading.Barrier(2)

    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            both.wait()
            out: Tensor = norm(x)
            both.wait()
            return out

    model = Model()
    forwards.watch(model)
    x = torch.randn(9, 3)
    threads = [threading.Thread(target=model, args=(x,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert norm.momentum == 1.0


class Normalised(nn.Module):
    """Batch normalisation of the user's own."""

    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.conv1, self.norm, self.conv2 = pyg.GCNConv(D, 16), norm, pyg.GCNConv(16, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        out: Tensor = self.conv2(self.norm(self.conv1(x, edge_index)).relu(), edge_index)
        return out


@pytest.mark.parametrize("norm", [nn.BatchNorm1d(16), pyg.BatchNorm(16)])
def test_norms_of_the_users_own_follow_the_weights(norm: nn.Module, data: Data) -> None:
    model = Normalised(norm)
    report = bignn.binarize_(model)
    assert "The running statistics of 'norm" in str(report)
    train(model, data)
    seen: list[Tensor] = []
    inner = next(part for part in model.modules() if isinstance(part, nn.BatchNorm1d))
    inner.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(data.x, data.edge_index)
    torch.testing.assert_close(inner.running_mean, seen[0].mean(dim=0))
    torch.testing.assert_close(inner.running_var, seen[0].var(dim=0))


def test_norms_of_a_plain_average_and_of_float_models_are_left_alone(data: Data) -> None:
    plain = Normalised(nn.BatchNorm1d(16, momentum=None))
    assert "running statistics" not in str(bignn.binarize_(plain))
    floats = Normalised(nn.BatchNorm1d(16))
    assert "running statistics" not in str(bignn.binarize_(floats, binarize="weights"))
    floats(data.x, data.edge_index)
    assert floats.norm.momentum == 0.1


def test_batches_of_different_sizes_are_averaged() -> None:
    norm = Center(3)
    batches = [torch.randn(rows, 3) + number for number, rows in enumerate((8, 8, 4, 8))]
    means: list[Tensor] = []
    for batch in batches:
        norm(batch)
        means.append(norm.running_mean.clone())  # type: ignore[union-attr]
    torch.testing.assert_close(means[0], batches[0].mean(dim=0))
    torch.testing.assert_close(means[1], batches[1].mean(dim=0))  # all of one size: the last
    expected = 0.9 * means[1] + 0.1 * batches[2].mean(dim=0)  # half a batch: a tenth
    torch.testing.assert_close(means[2], expected)
    torch.testing.assert_close(means[3], 0.8 * expected + 0.2 * batches[3].mean(dim=0))
    hook = FollowWeights(norm, "norm", ForwardCount())
    norm.eval()
    before = norm.momentum
    hook(norm, (batches[0],))
    assert norm.momentum == before


def test_batches_of_as_many_nodes_are_averaged_unless_they_are_the_same(data: Data) -> None:
    """As snapshots of one graph are; a copy of the same features is the same batch."""
    torch.manual_seed(0)
    model = Normalised(nn.BatchNorm1d(16))
    bignn.binarize_(model)
    for _ in range(2):
        model(data.x.clone(), data.edge_index)
    assert model.norm.momentum == 1.0
    pickle.loads(pickle.dumps(model))(data.x, data.edge_index)
    with torch.no_grad():
        model(data.x + 1, data.edge_index)  # nothing learns
        assert model.norm.momentum == 0.1
    model(data.x, data.edge_index)
    assert model.norm.momentum == 1.0
    data.x += 1
    model(data.x, data.edge_index)
    assert model.norm.momentum == pytest.approx(0.2)


@pytest.mark.parametrize("num_rows", [1000, 1024, 2048])
def test_batches_differ_though_a_column_is_the_same(num_rows: int) -> None:
    model = Normalised(nn.BatchNorm1d(16))
    bignn.binarize_(model)
    edges = torch.randint(num_rows, (2, 3000))
    for _ in range(2):
        x = torch.randn(num_rows, D)
        x[:, 0] = 1
        model(x, edges)
    assert model.norm.momentum == pytest.approx(0.2)


def test_a_momentum_of_others_is_left_alone(data: Data) -> None:
    model = Normalised(nn.BatchNorm1d(16))
    bignn.binarize_(model)
    train(model, data)
    sums: list[Tensor] = []
    model.norm.register_forward_pre_hook(lambda _, args: sums.append(args[0].mean(dim=0)))
    batches = [Data(data.x + number, data.edge_index) for number in range(3)]
    for batch in batches:
        batch.x = batch.x.clone()

    class Loaded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, batch: Data) -> Tensor:
            out: Tensor = self.model(batch.x, batch.edge_index)
            return out

    torch.optim.swa_utils.update_bn(batches, Loaded())
    torch.testing.assert_close(model.norm.running_mean, torch.stack(sums).mean(dim=0))


class SharedNorm(Normalised):
    """One norm for two layers."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.norm(self.conv1(x, edge_index)).relu()
        out: Tensor = self.conv2(self.norm(2 * x + 1), edge_index)
        return out


def test_a_norm_for_two_values_averages_them(data: Data) -> None:
    model = SharedNorm(nn.BatchNorm1d(16))
    report = bignn.binarize_(model)
    assert "The forward calls 'norm' more than once" in str(report)
    with pytest.warns(UserWarning, match="calls 'norm' more than once, so in evaluation"):
        model(data.x, data.edge_index)
    assert model.norm.momentum == 0.1
    model(data.x, data.edge_index)
    assert model.norm.momentum == 0.1


def test_statistics_of_batches_go_on_where_they_were(data: Data, tmp_path: Path) -> None:
    sizes = [data.subgraph(torch.arange(count)) for count in (30, 60, 50)]

    def made() -> nn.Module:
        torch.manual_seed(0)
        model = Normalised(nn.BatchNorm1d(16))
        bignn.binarize_(model)
        return model

    def losses(epochs: int, path: Path, *, resume: bool = False) -> list[float]:
        found: list[float] = []
        bignn.fit(
            made(), data, {"epochs": epochs, "patience": 99}, batches=sizes, progress=False,
            checkpoint_path=path, save_every=0, resume=resume,
            on_epoch=lambda _, loss, __: stop_after(found, loss, epochs),
        )  # fmt: skip
        return found

    def stop_after(found: list[float], loss: float, epochs: int) -> None:
        found.append(loss)
        if epochs == 6 and len(found) == 4 and stops[0]:
            stops[0] = False
            raise KeyboardInterrupt

    stops = [False]
    straight = losses(6, tmp_path / "straight.safetensors")
    stops = [True]
    with pytest.raises(KeyboardInterrupt):
        losses(6, tmp_path / "stopped.safetensors")
    rest = losses(6, tmp_path / "stopped.safetensors", resume=True)
    assert 0 < len(rest) < 6
    assert rest == straight[-len(rest) :]
