"""Running statistics before a sign: they follow the weights, and are those of one value."""

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from pyg_models import CLASSES, D, make_data
from torch import Tensor, nn
from torch_geometric.data import Data

import bignn
from bignn.nn.convert.center import Center, FollowWeights


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
    assert "calls 'conv2' more than once, so evaluation may differ" in asked
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
    expected = 0.75 * means[1] + 0.25 * batches[2].mean(dim=0)  # half a batch: a quarter
    torch.testing.assert_close(means[2], expected)
    torch.testing.assert_close(means[3], 0.5 * expected + 0.5 * batches[3].mean(dim=0))
    hook = FollowWeights()
    norm.eval()
    before = norm.momentum
    hook(norm, (batches[0],))
    assert norm.momentum == before
