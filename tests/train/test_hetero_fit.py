"""``fit`` on a ``HeteroData``: heterogeneous models train, with a teacher, and pack."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.nn as pyg
from torch import Tensor, nn
from torch_geometric.data import Data, HeteroData

import bignn
from bignn import InputError
from bignn.train.find_problem import hetero_problem

PAPERS, AUTHORS, H, CLASSES = 120, 50, 16, 3
CITES, WRITES = ("paper", "cites", "paper"), ("author", "writes", "paper")
HAS = ("paper", "has", "author")
QUICK = {"epochs": 4}


@pytest.fixture
def data() -> HeteroData:
    """Papers whose class is in their features and those of their authors; both have a y."""
    draw = torch.Generator().manual_seed(0)
    made = HeteroData()
    topic = torch.arange(AUTHORS) % CLASSES
    written = torch.stack([torch.arange(PAPERS) % AUTHORS, torch.arange(PAPERS)])
    y = topic[written[0]]
    for kind, classes, width in (("paper", y, 24), ("author", topic, 40)):
        typical = torch.randn(CLASSES, width, generator=draw)
        noise = torch.randn(len(classes), width, generator=draw)
        made[kind].x = typical[classes] + noise
    made["paper"].y, made["author"].y = y, topic
    part = torch.randint(3, (PAPERS,), generator=draw)
    masks = {f"{name}_mask": part == n for n, name in enumerate(("train", "val", "test"))}
    made["paper"].update(masks)
    made[CITES].edge_index = torch.randint(PAPERS, (2, 200), generator=draw)
    made[WRITES].edge_index, made[HAS].edge_index = written, written.flip(0)
    return made


class Plain(nn.Module):
    """A model of one type of nodes, for to_hetero; sizes of -1 are set by its first call."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = (pyg.SAGEConv((-1, -1), H) for _ in range(2))
        self.lin = pyg.Linear(-1, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.conv1(x, edge_index).relu()
        x = x + self.conv2(x, edge_index).relu()
        out: Tensor = self.lin(x)
        return out


class Relations(nn.Module):
    """Two HeteroConvs, and logits of papers alone."""

    def __init__(self) -> None:
        super().__init__()
        kinds = [(CITES, 24, 24), (WRITES, 40, 24), (HAS, 24, 40)]
        self.first = pyg.HeteroConv({kind: pyg.SAGEConv((s, t), H) for kind, s, t in kinds})
        self.second = pyg.HeteroConv({kind: pyg.SAGEConv(H, H) for kind, _, _ in kinds})
        self.lin = nn.Linear(H, CLASSES)

    def forward(self, x_dict: Any, edge_index_dict: Any) -> Tensor:
        x_dict = {kind: x.relu() for kind, x in self.first(x_dict, edge_index_dict).items()}
        out: Tensor = self.lin(self.second(x_dict, edge_index_dict)["paper"].relu())
        return out


class OfData(Relations):
    """The same, called with a HeteroData."""

    def forward(self, data: Any) -> Tensor:  # type: ignore[override]
        first = self.first(data.x_dict, data.edge_index_dict)
        second = self.second({kind: x.relu() for kind, x in first.items()}, data.edge_index_dict)
        out: Tensor = self.lin(second["paper"].relu())
        return out


class OfItems(OfData):
    """The same, which reads types of the HeteroData one by one."""

    def forward(self, data: Any) -> Tensor:  # type: ignore[override]
        x_dict = {"paper": data["paper"].x, "author": data["author"].x}
        edges = {kind: data[kind].edge_index for kind in (CITES, WRITES, HAS)}
        return Relations.forward(self, x_dict, edges)


def by_to_hetero(data: HeteroData) -> nn.Module:
    made: nn.Module = pyg.to_hetero(Plain(), data.metadata())
    return made


MODELS: dict[str, Callable[[HeteroData], nn.Module]] = {
    "to_hetero": by_to_hetero,
    "HeteroConv": lambda data: Relations(),
    "of a HeteroData": lambda data: OfData(),
    "of its items": lambda data: OfItems(),
}


@torch.no_grad()
def paper_logits(model: nn.Module, data: HeteroData) -> Tensor:
    arguments = (data,) if isinstance(model, OfData) else (data.x_dict, data.edge_index_dict)
    out = model.eval()(*arguments)
    found: Tensor = out["paper"] if isinstance(out, dict) else out
    return found


def accuracy(classes: Any, data: HeteroData) -> float:
    mask = data["paper"].test_mask.numpy()
    return float(100 * (np.asarray(classes)[mask] == data["paper"].y.numpy()[mask]).mean())


@pytest.mark.parametrize("taught", [False, True])
@pytest.mark.parametrize("name", MODELS)
def test_it_learns_and_packs(name: str, taught: bool, data: HeteroData) -> None:
    data["paper"].class_names = ["a", "b", "c"]
    torch.manual_seed(0)
    teacher = None
    if taught:
        teacher = MODELS[name](data)  # float, with sizes that are not set yet
        assert bignn.fit(teacher, data, {"epochs": 40}, progress=False).test_acc == 100
    model = MODELS[name](data)
    assert bignn.binarize_(model, example=data).obstacle is None
    result = bignn.fit(model, data, {"epochs": 30}, teacher=teacher, progress=False)
    expected = paper_logits(model, data)
    assert result.test_acc == pytest.approx(accuracy(expected.argmax(dim=1), data))
    assert result.test_acc is not None
    assert result.test_acc > 90
    assert data["paper"].x.device.type == "cpu"
    packed = bignn.pack(model)  # of papers, as it was trained
    assert np.array_equal(packed.predict(data), expected.argmax(dim=1))
    assert packed.class_names == ("a", "b", "c")


def test_a_teacher_is_learned_from_on_unlabelled_nodes(data: HeteroData) -> None:
    """With its share 1, labels do not matter: a student of wrong labels does as its teacher."""
    torch.manual_seed(0)
    teacher, student = Relations(), Relations()
    bignn.fit(teacher, data, {"epochs": 40}, progress=False)
    wrong = copy.deepcopy(data)
    wrong["paper"].y[wrong["paper"].train_mask] = 0
    settings = {"epochs": 40, "distill_mix": 1.0}
    assert bignn.fit(student, wrong, settings, teacher=teacher, progress=False).test_acc == 100
    alone = bignn.fit(Relations(), wrong, {"epochs": 40}, progress=False).test_acc
    assert alone is not None
    assert alone < 60


def test_a_type_is_chosen(data: HeteroData, tmp_path: Path) -> None:
    path = tmp_path / "model.bignn"
    model = by_to_hetero(data)
    bignn.binarize_(model, example=data)
    both = copy.deepcopy(data)
    number = torch.arange(AUTHORS)
    both["author"].update({"train_mask": number % 2 == 0, "val_mask": number % 2 == 1})
    with pytest.raises(InputError, match=r"'node_type' must be one of \['paper', 'author'\].*pass"):
        bignn.fit(model, both, QUICK, progress=False)
    with pytest.raises(InputError, match=r"'node_type' must be one of .*, got 'venue'"):
        bignn.fit(model, both, QUICK, node_type="venue", progress=False)
    assert bignn.fit(model, both, QUICK, node_type="author", progress=False).test_acc is None
    with torch.no_grad():
        expected = model(data.x_dict, data.edge_index_dict)
    for kind, packed in (
        ("author", bignn.pack(model)),
        ("paper", bignn.pack(model, node_type="paper")),
    ):
        assert np.array_equal(packed.predict(data), expected[kind].argmax(dim=1))
        assert f"of '{kind}' nodes" in repr(packed)
        packed.save(path)
        assert repr(bignn.PackedModel.open(path)) == repr(packed)


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda papers: papers.pop("val_mask"), "labels of 'paper' nodes, but no val_mask; set"),
        (lambda papers: papers.pop("y"), "labels of 'author' nodes, but no train_mask and val_m"),
        (lambda papers: papers.train_mask.fill_(False), "'train_mask' must be True at some"),
        (lambda papers: papers.update({"y": papers.y[:9]}), "'y' must be"),
        (lambda papers: papers.x.fill_(torch.nan), "nodes of 'paper': 'x' must be"),
    ],
)
def test_labels_and_masks_are_needed(change: Any, line: str, data: HeteroData) -> None:
    change(data["paper"])
    with pytest.raises(InputError, match=line):
        bignn.fit(Relations(), data, QUICK, progress=False)


def test_labels_of_some_type_are_needed(data: HeteroData) -> None:
    del data["paper"].y
    with pytest.raises(InputError, match="'paper' nodes have no labels; set data"):
        bignn.fit(Relations(), data, QUICK, node_type="paper", progress=False)
    del data["author"].y
    with pytest.raises(InputError, match=r"no type of nodes has labels; set data\['paper'\]\.y"):
        bignn.fit(Relations(), data, QUICK, progress=False)


def test_a_model_of_one_type_is_refused(data: HeteroData) -> None:
    gcn = pyg.GCN(24, H, 2, CLASSES)
    expected = r"called as model\(x_dict, edge_index_dict, \.\.\.\), got .*to_hetero"
    with pytest.raises(InputError, match=f"'model' must be one {expected}"):
        bignn.fit(gcn, data, QUICK, progress=False)
    with pytest.raises(InputError, match=f"'teacher' must be one {expected}"):
        bignn.fit(Relations(), data, QUICK, teacher=gcn, progress=False)
    with pytest.raises(InputError, match="'node_type' must be left out for a graph of one type"):
        bignn.fit(gcn, Data(data["paper"].x, data[CITES].edge_index), node_type="paper")
    narrow = copy.deepcopy(data)
    narrow["author"].x = narrow["author"].x[:, :7]
    with pytest.raises(InputError, match="'model' must be one that takes the graph's 7 features"):
        bignn.fit(Relations(), narrow, QUICK, progress=False)

    class OfAuthors(Relations):
        def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
            return {"author": self.first(x_dict, edge_index_dict)["author"]}

    with pytest.raises(InputError, match=r"returns logits of 'paper' nodes, got those of \['auth"):
        bignn.fit(OfAuthors(), data, QUICK, progress=False)


def test_other_settings_are_refused(data: HeteroData) -> None:
    with pytest.raises(InputError, match="without 'inductive' and 'sampling' for a HeteroData"):
        bignn.fit(Relations(), data, {"inductive": True}, progress=False)
    with pytest.raises(InputError, match="'batches' must be of HeteroData with labels of 'paper'"):
        bignn.fit(Relations(), data, QUICK, batches=[5], progress=False)


class Weighed(nn.Module):
    """A convolution that reads weights of edges, and a second input without a default."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = pyg.HeteroConv({WRITES: pyg.GraphConv((40, 24), CLASSES)})
        self.seen: Any = None

    def forward(self, x: Any, edges: Any, pos_dict: Any, edge_weight_dict: Any = None) -> Tensor:
        self.seen = edge_weight_dict, pos_dict
        given = {} if edge_weight_dict is None else {"edge_weight_dict": edge_weight_dict}
        out: Tensor = self.conv(x, edges, **given)["paper"]
        return out


@pytest.mark.filterwarnings("ignore:There exist node types")
def test_other_arguments_go_by_their_names(data: HeteroData) -> None:
    with pytest.raises(InputError, match=r"forward takes 'pos_dict', which the graph does not"):
        bignn.fit(Weighed(), data, QUICK, progress=False)
    data["paper"].pos = torch.randn(PAPERS, 2)
    data[WRITES].edge_weight = torch.rand(PAPERS)
    model = Weighed()
    bignn.fit(model, data, QUICK, progress=False)
    assert torch.equal(model.seen[0][WRITES], data[WRITES].edge_weight)
    assert torch.equal(model.seen[1]["paper"], data["paper"].pos)
    with pytest.warns(UserWarning, match="'edge_weight' is not used: the forward of 'model'"):
        bignn.fit(Relations(), data, QUICK, progress=False)


def test_numbers_and_labels_are_learned(data: HeteroData) -> None:
    for y, metric in ((torch.rand(PAPERS, CLASSES), "mae"), (data["paper"].y == 1, "micro_f1")):
        other = copy.deepcopy(data)
        other["paper"].y = y if y.ndim == 2 else y[:, None].repeat(1, CLASSES)
        model = Relations()
        bignn.binarize_(model)
        assert bignn.fit(model, other, QUICK, progress=False).metric == metric
        values = bignn.pack(model).predict(other, output="logits")
        assert np.allclose(values, paper_logits(model, other), atol=1e-4)


def test_a_run_is_resumed(data: HeteroData, tmp_path: Path) -> None:
    def run(epochs: int, resume: bool, path: Path) -> Any:
        torch.manual_seed(0)
        model = Relations()
        bignn.binarize_(model, dropout=0.3)

        def stop(epoch: int, *_: Any) -> None:
            if epoch == epochs:
                raise KeyboardInterrupt

        options: Any = {"checkpoint_path": path, "resume": resume, "save_every": 0}
        try:
            bignn.fit(model, data, {"epochs": 8}, progress=False, on_epoch=stop, **options)
        except KeyboardInterrupt:
            return None
        return model.state_dict()

    whole = run(99, False, tmp_path / "whole.safetensors")
    assert run(4, False, tmp_path / "part.safetensors") is None
    resumed = run(99, True, tmp_path / "part.safetensors")
    assert all(torch.equal(whole[key], resumed[key]) for key in whole)
    data["author"].x[0] += 1
    with pytest.raises(bignn.FileError, match="its 'graph' is"):
        run(99, True, tmp_path / "part.safetensors")


def test_a_loader_gives_batches(data: HeteroData) -> None:
    """The loss is taken on a loader's seeds, or on the training nodes of what it yields."""
    halves = [data.subgraph({"paper": torch.arange(PAPERS) % 2 == n}) for n in range(2)]
    torch.manual_seed(0)
    model = Relations()
    found = bignn.fit(model, data, {"epochs": 40}, batches=halves, progress=False)
    assert found.test_acc is not None
    assert found.test_acc > 90
    problem = hetero_problem(data, None, None, torch.device("cpu"))
    data["paper"].batch_size = 20
    learned = data["paper"].train_mask.nonzero()[:, 0]
    assert torch.equal(problem.as_batch(data).loss_nodes, learned[learned < 20])
    batch: Any = problem.as_batch(data)
    batch.hetero["paper"].x = None
    assert data["paper"].x is not None  # the caller's stays as it was, where it was
    del data["paper"].train_mask
    assert torch.equal(problem.as_batch(data).loss_nodes, torch.arange(20))


@pytest.mark.parametrize("kind", [pyg.GraphSAGE, pyg.GCN, bignn.nn.GCN], ids=lambda k: k.__module__)
def test_models_of_plain_graphs_are_refused(data: HeteroData, kind: Any) -> None:
    with pytest.raises(InputError, match="to_hetero") as refused:
        bignn.fit(kind(24, H, 2, CLASSES), data, QUICK, node_type="paper")
    assert "\n" not in str(refused.value)
