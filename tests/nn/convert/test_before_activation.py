"""Binary layers in a model's own forward read values before activation and dropout."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from pyg_models import CLASSES, D, Own, make_data, train
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

import bignn
from bignn import InputError
from bignn.nn import BatchNorm
from bignn.nn.convert.wrapped_layer import MOST_DROPPED


@pytest.fixture
def data() -> Data:
    return make_data()


def test_after_a_relu_alone_all_signs_are_plus(data: Data) -> None:
    """What looking past is for; and what batch normalisation before the sign does for it."""

    class Hidden(Own):
        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            out: Tensor = self.conv2(self.conv1(x, edge_index).clamp(min=0), edge_index)
            return out

    torch.manual_seed(0)
    model = Hidden()
    bignn.binarize_(model, center=False)
    with pytest.warns(UserWarning, match="100% of the columns that 'conv2' reads.*center=True"):
        model(data.x, data.edge_index)
    model = Hidden()
    bignn.binarize_(model)
    assert isinstance(model.conv2.center, BatchNorm)
    assert train(model, data, lambda: model(data.x, data.edge_index)) > 0.8


def test_values_moved_after_an_activation_are_followed(data: Data) -> None:
    class Jumping(nn.Module):
        def __init__(self, act: Callable[[Tensor], Tensor]) -> None:
            super().__init__()
            self.conv1, self.conv2 = pyg.GCNConv(D, 8), pyg.GCNConv(8, 8)
            self.lin = nn.Linear(16, CLASSES)
            self.act = act

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            a = self.act(self.conv1(x, edge_index))
            b = self.act(self.conv2(a, edge_index))
            out: Tensor = self.lin(torch.cat([a, b], dim=-1)[:10])
            return out

    outputs = []
    for act in (
        lambda h: h,
        torch.relu,
        functional.elu,
        lambda h: functional.relu_(h),
        lambda h: functional.relu(h, True),
        Tensor.relu_,
    ):
        torch.manual_seed(0)
        model = Jumping(act)
        bignn.binarize_(model, center=False)  # not all of them can be traced
        model.fit_input(data.x)  # type: ignore[operator]
        outputs.append(model(data.x, data.edge_index))
    for other in outputs[1:]:
        assert torch.equal(outputs[0], other)


def test_a_value_changed_in_place_is_not_looked_past(data: Data) -> None:
    class Changed(Own):
        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            x = self.conv1(x, edge_index).relu()
            x -= 0.1
            out: Tensor = self.conv2(x, edge_index)
            return out

    model = Changed()
    bignn.binarize_(model, center=False)
    seen: list[Tensor] = []
    model.conv2.lin.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    model(data.x, data.edge_index)
    assert float(seen[0].detach().min()) == pytest.approx(-0.1)


def test_a_change_in_place_of_what_was_before_says_so(data: Data) -> None:
    """``r = relu(h); h += y``: r is what it was, but what it was made from is gone."""

    class Changed(Own):
        moves = False

        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            h = self.conv1(x, edge_index)
            r = h.relu()
            with torch.no_grad():
                h += 1
            r = functional.dropout(torch.cat([r], dim=1), 0.5, self.training) if self.moves else r
            out: Tensor = self.conv2(r, edge_index)
            return out

    for moves in (False, True):
        model = Changed()
        model.moves = moves
        bignn.binarize_(model)
        for training in (True, False):
            model.train(training)
            with pytest.raises(
                InputError, match=r"'conv2' reads has been changed in place"
            ) as caught:
                model(data.x, data.edge_index)
            assert "\n" not in str(caught.value)
        float_reader = Changed()
        float_reader.moves = moves
        bignn.binarize_(float_reader, skip=["conv2"])
        float_reader(data.x, data.edge_index)  # it reads r itself


def test_parts_with_different_dropout_keep_their_origins(data: Data) -> None:
    """Side by side the layer drops the largest share; signs are those from before the ReLU."""

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv1, self.conv2 = pyg.GCNConv(D, 8), pyg.GCNConv(D, 8)
            self.lin = nn.Linear(16, CLASSES)
            self.by_name = False

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            a = self.conv1(x, edge_index).relu()
            b = functional.dropout(self.conv2(x, edge_index).relu(), 0.5, self.training)
            both = torch.cat(tensors=[a, b], dim=1) if self.by_name else torch.cat([a, b], dim=1)
            out: Tensor = self.lin(both)
            return out

    for by_name in (False, True):
        model = Parts()
        model.by_name = by_name
        bignn.binarize_(model)
        for conv in (model.conv1, model.conv2):  # which both drop of x
            wrapping: Any = conv.wrapping
            assert wrapping.features_dropout == 0.5
            wrapping.features_dropout = 0.0
        seen: list[Tensor] = []
        model.lin.register_forward_pre_hook(lambda _, args, to=seen: to.append(args[0]))
        model(data.x, data.edge_index)
        assert model.lin.dropout == MOST_DROPPED
        model.eval()
        model(data.x, data.edge_index)
        assert float(seen[0].detach().min()) < 0
        assert torch.equal(seen[0], seen[1])
