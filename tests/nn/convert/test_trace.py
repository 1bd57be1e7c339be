"""Converted models packed: which can be, with equal classes, and why others cannot."""

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
import torch_geometric.nn as pyg
from pyg_models import NAMES, Between, Modules, Own, family, make_data
from torch import Tensor, nn
from torch.nn import functional
from torch_geometric.data import Data

import bignn
from bignn import InputError
from bignn.nn.convert.trace import trace


@pytest.fixture
def data() -> Data:
    return make_data()


def packed_like_torch(model: nn.Module, call: Callable[[], Tensor], data: Data) -> None:
    """Every class, and the logits up to rounding; biases are random so that no sum is near 0."""
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
        model.train()
        for _ in range(3):
            call()
        modes = [module.training for module in model.modules()]
        packed = bignn.pack(model)
        assert modes == [module.training for module in model.modules()]
        expected = call_in_eval(model, call)
    graph = bignn.from_pyg(data)
    logits = torch.from_numpy(packed.predict(bignn.pack_graph(graph, like=packed), output="logits"))
    scores = logits.log_softmax(dim=-1)
    assert torch.allclose(scores, expected.log_softmax(dim=-1), atol=1e-4)
    classes = torch.from_numpy(packed.predict(bignn.pack_graph(graph, like=packed)))
    assert torch.equal(classes.long(), expected.argmax(dim=-1))


def call_in_eval(model: nn.Module, call: Callable[[], Tensor]) -> Tensor:
    model.eval()
    return call()


@pytest.mark.parametrize("name", NAMES)
def test_pygs_models_pack(name: str, data: Data) -> None:
    options: list[dict[str, Any]] = [
        {},
        {"norm": "BatchNorm", "dropout": 0.5},
        {"norm": "BatchNorm", "jk": "cat"},
    ]
    for some in options:
        for binarize in ("both", "weights"):
            model = family(**some)[name]
            bignn.binarize_(model, binarize=binarize)
            packed_like_torch(model, partial(model, data.x, data.edge_index), data)


def test_models_of_ones_own_pack(data: Data) -> None:
    torch.manual_seed(0)
    own, modules, head, centered = Own(dropout=0.5), Modules(), Modules(), Own()
    bignn.binarize_(own)
    bignn.binarize_(modules)
    bignn.binarize_(head, skip=["lin_out"])  # its ELU counts
    bignn.binarize_(centered, center=True)  # its ReLU counts
    packed_like_torch(own, lambda: own(data.x, data.edge_index), data)
    packed_like_torch(modules, lambda: modules(data), data)
    packed_like_torch(head, lambda: head(data), data)
    packed_like_torch(centered, lambda: centered(data.x, data.edge_index), data)
    steps = [step["op"] for step in bignn.pack(centered).operations]
    assert "relu" in steps
    assert "relu" not in [step["op"] for step in bignn.pack(own).operations]


def test_what_cannot_be_packed_says_so(data: Data) -> None:
    class Branching(Own):
        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            x = self.conv1(x, edge_index)
            return x if x.sum() > 0 else self.conv2(x, edge_index)

    class Scaled(Own):
        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            out: Tensor = self.conv2(self.conv1(x, edge_index) * 2, edge_index.flip(0))
            return out

    unfitted = family()["gcn"]
    bignn.binarize_(unfitted)
    with pytest.raises(InputError, match="no input statistics yet"):
        bignn.pack(unfitted)
    with pytest.raises(InputError, match=r"one that bignn\.binarize_ has converted, got Own"):
        bignn.pack(Own())

    class Block(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.exp()

    class Nested(Own):
        def __init__(self, block: nn.Module) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([block])

        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            out: Tensor = self.conv2(self.blocks[0](self.conv1(x, edge_index)), edge_index)
            return out

    class Deciding(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x if x.sum() > 0 else -x

    class Counting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * int(x.sum())

    class Looping(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.stack([row * 2 for row in x])

    class Pair(Own):
        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Any:
            h = self.conv1(x, edge_index)
            return self.conv2(h, edge_index), h

    for model, line in (
        (Branching(), "its forward decides by a tensor's numbers or size .*test_trace.py"),
        (Nested(Deciding()), r"that of Deciding 'blocks\.0' decides by a tensor's numbers"),
        (Nested(Counting()), r"that of Counting 'blocks\.0' makes a Python number of a tensor"),
        (Nested(Looping()), r"that of Looping 'blocks\.0' goes through the entries of a tensor"),
        (
            Nested(Block()),
            r"does what 'exp' in Block 'blocks\.0' \(line \d+ of test_trace.py\) does",
        ),
        (Nested(pyg.HeteroLayerNorm(16, 2)), r"HeteroLayerNorm 'blocks\.0' has no packed form"),
        (
            Scaled(),
            r"GCNConv 'conv2' is given what 'flip' makes \(line \d+ of test_trace.py\) as "
            "'edge_index', where packed layers take the model's own edges",
        ),
        (Pair(), "its forward returns a tuple, more than one tensor; return the logits alone"),
    ):
        report = bignn.binarize_(model)
        assert re.search(line, str(report).splitlines()[-1])  # before it is trained
        model.fit_input(data.x)  # type: ignore[operator]
        with pytest.raises(InputError, match=line) as caught:
            bignn.pack(model)
        assert "\n" not in str(caught.value)


def test_the_report_of_what_can_be_packed_is_silent_and_leaves_the_model_alone(data: Data) -> None:
    class Keeping(Own):
        last: Any = None
        calls = 0

        def forward(self, x: Tensor, edge_index: Tensor, _: Tensor | None = None) -> Tensor:
            self.calls += 1
            self.last = out = super().forward(x, edge_index)
            return out

    model = Keeping()
    report = bignn.binarize_(model)
    assert report.obstacle is None and "packed:" not in str(report)
    assert model.last is None and model.calls == 0 and model.training
    model(data.x, data.edge_index)
    assert isinstance(model.last, Tensor) and model.calls == 1


def changed_by_add(h: Tensor, y: Tensor) -> Tensor:
    alias = h
    h += y
    return alias


def changed_by_add_alone(h: Tensor, y: Tensor) -> Tensor:
    h.add_(y)
    return h


def changed_under_another_name(h: Tensor, y: Tensor) -> Tensor:
    alias = functional.dropout(h, 0.5, training=False)
    functional.relu(h, True)
    return alias


@torch.no_grad()
def test_functions_between_layers_pack(data: Data) -> None:
    between: Any
    options: Any
    for between, options in (
        (lambda h, y: torch.add(h, y, alpha=1), {}),
        (lambda h, y: torch.add(h, other=y), {}),
        (changed_by_add, {}),
        (changed_by_add_alone, {}),
        (changed_under_another_name, {"skip": ["head"]}),
        (lambda h, y: functional.elu_(h, 1.0), {"skip": ["head"]}),
        (lambda h, y: functional.leaky_relu(h, 0.5), {}),
    ):
        torch.manual_seed(0)
        lasts: tuple[Any, ...] = (
            None,
            lambda out: out.log_softmax(1),
            lambda out: functional.softmax(out, dim=-1),
        )
        for last in lasts:
            model = Between(between, last)
            bignn.binarize_(model, **options)
            model.fit_input(data.x)  # type: ignore[operator]
            model.eval()
            expected = model(data.x, data.edge_index).argmax(dim=-1)
            packed = bignn.pack(model)
            classes = packed.predict(bignn.pack_graph(bignn.from_pyg(data), like=packed))
            assert torch.equal(torch.from_numpy(classes).long(), expected)


def test_arguments_of_functions_that_packing_lacks_say_so(data: Data) -> None:
    between: Any
    for between, line in (
        (lambda h, y: h / y, "divides by a value of the nodes"),
        (lambda h, y: h * torch.ones(3, 16), r"a parameter of shape \[3, 16\] is neither one"),
        (
            lambda h, y: functional.elu_(h, 2.0, 3.0),  # type: ignore[call-arg]
            "what 'elu' .* does",
        ),
        (lambda h, y: functional.hardtanh(h, -1.0, 2.0), "what 'hardtanh' .* does"),
        (lambda h, y: torch.stack([h, y]).sum(1), "what 'sum' .* does"),
        (lambda h, y: torch.stack([h, y]).max(0)[1], "the places of 'max' .* are read"),
        (lambda h, y: torch.cat([h, y]), "what 'cat' .* does"),
        (lambda h, y: torch.cat(tensors=[h, y], dim=0), "what 'cat' .* does"),
        (lambda h, y: h.mean(dim=1), "what 'mean' .* does"),
        (lambda h, y: h.log_softmax(dim=1), "what 'log_softmax' .* does"),
        (lambda h, y: functional.dropout(h, 0.5), "dropout acts in evaluation too"),
    ):
        model = Between(between)
        bignn.binarize_(model, skip=["head"])  # it reads what comes after the activation
        model.fit_input(data.x)  # type: ignore[operator]
        with pytest.raises(InputError, match=line) as caught:
            trace(model)
        assert "\n" not in str(caught.value)


def test_a_softmax_over_the_nodes_is_not_dropped(data: Data) -> None:
    lasts: list[Any] = [
        lambda out: out.softmax(0),
        lambda out: torch.log_softmax(out, dim=-2),
        lambda out: functional.log_softmax(out, dim=0).log_softmax(dim=1),
    ]
    for last in lasts:
        model = Between(lambda h, y: h, last)
        bignn.binarize_(model)
        model.fit_input(data.x)  # type: ignore[operator]
        with pytest.raises(
            InputError, match=r"softmax' .* at its end is over dimension (0|-2), not 1"
        ):
            bignn.pack(model)
