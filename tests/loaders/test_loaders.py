"""Loaders of sampled batches: real edges, PyG's interfaces, the same batches for any workers."""

import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.nn import GCNConv

from bignn import InputError
from bignn.graph import Names, from_pyg
from bignn.kernels.saint_weights import edge_importance
from bignn.loaders import (
    LayerLoader,
    NeighborLoader,
    NeighborSampler,
    SaintEdgeLoader,
    SaintNodeLoader,
    SaintRandomWalkLoader,
)
from bignn.loaders.seeded import SeededLoader
from bignn.nn.adjacency import normalized_adjacency

NODES, EDGES = 80, 500


def make_data(num_edges: int = EDGES) -> Data:
    """Skewed, directed, with isolated nodes, loops and repeated edges; rows tell who they are."""
    generator = torch.Generator().manual_seed(0)
    ends = (NODES * torch.rand(2, num_edges, generator=generator) ** 2).long()
    return Data(
        x=torch.arange(NODES * 3.0).view(NODES, 3),
        edge_index=ends,
        edge_attr=torch.arange(num_edges),
        y=torch.arange(NODES) % 4,
        train_mask=torch.arange(NODES) % 3 != 0,
    )


LOADERS: dict[str, Callable[..., Any]] = {
    "neighbours": lambda data, **k: NeighborLoader(data, [3, 2], batch_size=16, shuffle=True, **k),
    "layers": lambda data, **k: LayerLoader(data, [20, 30], batch_size=16, shuffle=True, **k),
    "nodes": lambda data, **k: SaintNodeLoader(data, 20, num_steps=4, sample_coverage=3, **k),
    "edges": lambda data, **k: SaintEdgeLoader(data, 20, num_steps=4, sample_coverage=3, **k),
    "walks": lambda data, **k: SaintRandomWalkLoader(
        data, 10, 2, num_steps=4, sample_coverage=3, **k
    ),
}


def tensors(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, Data):
        return [t for _, item in sorted(value.to_dict().items()) for t in tensors(item)]
    if isinstance(value, list | tuple):
        return [t for item in value for t in tensors(item)]
    return [torch.tensor(value)]


def same(a: Any, b: Any) -> bool:
    mine, others = tensors(a), tensors(b)
    return len(mine) == len(others) and all(map(torch.equal, mine, others))


def check_edges(data: Data, batch: Data) -> None:
    assert torch.equal(data.edge_index[:, batch.e_id], batch.n_id[batch.edge_index])
    assert torch.equal(data.edge_attr[batch.e_id], batch.edge_attr)
    for key in ("x", "y", "train_mask"):
        assert torch.equal(data[key][batch.n_id], batch[key])


def check_neighbourhoods(data: Data, batches: list[Data], fanouts: list[int]) -> None:
    ids = torch.cat([batch.n_id[: batch.batch_size] for batch in batches])
    assert sorted(ids.tolist()) == data.train_mask.nonzero().flatten().tolist()
    for batch in batches:
        check_edges(data, batch)
        assert torch.equal(batch.input_id, batch.n_id[: batch.batch_size])  # as of a mask
        assert sum(batch.num_sampled_nodes) == len(batch.n_id)
        assert sum(batch.num_sampled_edges) == len(batch.e_id)
        degrees = torch.bincount(data.edge_index[1], minlength=NODES)
        drawn = torch.bincount(batch.edge_index[1], minlength=batch.batch_size)
        expected = degrees[batch.n_id[: batch.batch_size]].clamp(max=fanouts[0])
        assert torch.equal(drawn[: batch.batch_size], expected)


def test_neighbour_batches() -> None:
    data = make_data()
    loader = NeighborLoader(data, [4, 3], input_nodes=data.train_mask, batch_size=20, shuffle=True)
    assert (len(loader), loader.batch_size) == (3, 20)
    check_neighbourhoods(data, list(loader), [4, 3])
    ids = [[30, 2, 9], [7]]
    given = NeighborLoader(data, [-1], input_nodes=[30, 2, 9, 7], batch_size=3, transform=tensors)
    assert [batch[-1].tolist() for batch in given] != ids  # transformed
    plain = NeighborLoader(data, [-1], input_nodes=torch.tensor([30, 2, 9, 7]), batch_size=3)
    assert [batch.n_id[: batch.batch_size].tolist() for batch in plain] == ids
    assert [batch.input_id.tolist() for batch in plain] == [[0, 1, 2], [3]]
    assert plain(torch.tensor([3, 0])).n_id[:2].tolist() == [7, 30]


def test_pygs_node_loader_takes_the_sampler() -> None:
    for workers in (0, 2):
        data = make_data()
        sampler = NeighborSampler(data, [4, 3])
        assert sampler.edge_permutation is None
        loader = NodeLoader(
            *[data, sampler], input_nodes=data.train_mask, batch_size=20, num_workers=workers
        )
        first, second = list(loader), list(loader)
        check_neighbourhoods(data, first, [4, 3])
        assert not same(first, second)
        with pytest.raises(NotImplementedError, match="around nodes"):
            sampler.sample_from_edges(None)


def test_all_neighbours_give_the_whole_graphs_output() -> None:
    """With every neighbour of three hops two layers compute what they do on the whole graph."""
    data = make_data()
    torch.manual_seed(0)
    convs = [GCNConv(3, 4, normalize=False), GCNConv(4, 2, normalize=False)]

    def forward(x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = convs[1](convs[0](x / 100, edge_index).relu(), edge_index)
        return out

    whole = forward(data.x, data.edge_index)
    for batch in NeighborLoader(data, [-1, -1], batch_size=30):
        part = forward(batch.x, batch.edge_index)[: batch.batch_size]
        assert torch.allclose(part, whole[batch.n_id[: batch.batch_size]], rtol=1e-4)


def test_batches_depend_on_torchs_generator_alone() -> None:
    for name in LOADERS:
        data = make_data()
        epochs = []
        for options in ({}, {"num_workers": 1}, {"num_workers": 2, "persistent_workers": True}):
            torch.manual_seed(5)
            loader = LOADERS[name](data, **options)
            epochs.append([list(loader), list(loader), list(loader)])
            loader._iterator = None  # its workers stop now, and not after torch's five seconds
        assert same(epochs[0], epochs[1])
        assert same(epochs[0], epochs[2])
        assert not same(epochs[0][0], epochs[0][1])
        assert not same(epochs[0][1], epochs[0][2])
        torch.manual_seed(6)
        assert not same(epochs[0][0], list(LOADERS[name](data)))


def test_an_epoch_takes_one_word() -> None:
    loader = LOADERS["neighbours"](make_data())
    torch.manual_seed(1)
    torch.empty((), dtype=torch.int64).random_()
    after = torch.get_rng_state()
    torch.manual_seed(1)
    list(loader)
    assert torch.equal(torch.get_rng_state(), after)
    state = torch.get_rng_state()
    generator = torch.Generator()
    own = [
        list(LOADERS["neighbours"](make_data(), generator=generator.manual_seed(3)))
        for _ in range(2)
    ]
    assert same(*own)
    assert torch.equal(torch.get_rng_state(), state)
    one, other = iter(loader), iter(loader)
    assert not same(next(one), next(other))


def test_workers_after_threads_have_run() -> None:
    """Children forked from a process whose native threads are at work neither hang nor differ."""
    code = (
        "import torch, bignn\n"
        "from torch_geometric.data import Data\n"
        "from bignn.loaders import NeighborLoader, SaintRandomWalkLoader\n"
        "bignn.set_num_threads(3)\n"
        "data = Data(x=torch.arange(9000.0)[:, None], edge_index=torch.randint(9000, (2, 90000)))\n"
        "def batches(w):\n"
        "    torch.manual_seed(0)\n"
        "    walks = SaintRandomWalkLoader(data, 3000, 2, num_steps=3, num_workers=w)\n"
        "    near = NeighborLoader(data, [5, 5], batch_size=3000, num_workers=w)\n"
        "    return [b.n_id.tolist() for b in [*walks, *near]]\n"
        "expected = batches(0)\n"
        "print(len(expected), all(batches(2) == expected for _ in range(2)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
        env={**os.environ, "OMP_NUM_THREADS": "3"},
    )
    assert done.stdout == "6 True\n", done.stderr


def test_loaders_travel_to_spawned_workers() -> None:
    loader = LOADERS["neighbours"](make_data())
    numbers = [(1, 0, 3), (1, 1, 5)]
    again = pickle.loads(pickle.dumps(loader.collate_fn))
    assert same(again(numbers), loader.collate_fn(numbers))


def test_saint_batches() -> None:
    for name in ("nodes", "edges", "walks"):
        data = make_data()
        loader = LOADERS[name](data)
        assert len(loader) == 4
        for batch in loader:
            check_edges(data, batch)
            assert batch.num_nodes == len(batch.n_id) == len(batch.node_norm)
            assert torch.equal(batch.n_id, batch.n_id.unique())
            inside = torch.isin(data.edge_index, batch.n_id).all(dim=0)  # every edge among them
            assert torch.equal(batch.e_id.sort().values, inside.nonzero().flatten())
            assert torch.equal(batch.node_norm, loader.node_norm[batch.n_id])
            assert torch.equal(batch.edge_norm, loader.edge_norm[batch.e_id])
        assert data.x.shape == (NODES, 3)
        bare = SaintNodeLoader(data, 5)
        assert "node_norm" not in next(iter(bare))


def test_saint_coefficients_are_those_of_the_samplers_probabilities() -> None:
    """Node v is missed by all of m draws with (1 - p_v)^m: 1/λ_v is N_s / C_v / N about it."""
    data = make_data()
    torch.manual_seed(0)
    loader = SaintNodeLoader(data, 30, sample_coverage=400)
    dense = normalized_adjacency(data.edge_index, None, NODES).matrix.to_dense().double()
    norms = (dense**2).sum(dim=0)
    met = 1 - (1 - norms / norms.sum()) ** 30
    num_subgraphs = 400 * NODES / float(met.sum())
    assert loader.node_norm is not None
    assert loader.edge_norm is not None
    share = 1 / (loader.node_norm.double() * NODES)
    assert ((share - met).abs() < 5 * (met * (1 - met) / num_subgraphs).sqrt() + 1e-3).all()
    # Both ends of an edge are met, given that its target is.
    source, target = data.edge_index
    p = norms / norms.sum()
    both = 1 - (1 - p[source]) ** 30 - (1 - p[target]) ** 30 + (1 - p[source] - p[target]) ** 30
    both = torch.where(source == target, met[target], both)
    alpha = both / met[target]
    number = num_subgraphs * met[target]
    error = (1 / loader.edge_norm.double() - alpha).abs()
    assert (error < 5 * (alpha * (1 - alpha) / number).sqrt() + 2e-3).all()


def test_saint_edges_are_drawn_by_their_importance() -> None:
    data = make_data()
    sources, targets = data.edge_index.numpy()
    importance = edge_importance(sources, targets, NODES)
    expected = importance / importance.sum()
    loader = SaintEdgeLoader(data, 1, num_steps=4000)
    torch.manual_seed(0)
    ends = [tuple(batch.n_id.tolist()) for batch in loader]
    undirected: dict[tuple[int, ...], float] = {}
    for edge, (u, v) in enumerate(data.edge_index.t().tolist()):
        key = tuple(sorted({u, v}))
        undirected[key] = undirected.get(key, 0.0) + expected[edge]
    assert set(ends) <= set(undirected)
    for key, p in sorted(undirected.items(), key=lambda item: -item[1])[:40]:
        assert abs(ends.count(key) / 4000 - p) < 4.5 * (p * (1 - p) / 4000) ** 0.5


def test_walks_go_along_the_edges() -> None:
    path = torch.stack([torch.arange(9), torch.arange(1, 10)])
    loader = SaintRandomWalkLoader(Data(edge_index=path, num_nodes=10), 1, 3, num_steps=30)
    for batch in loader:
        first = int(batch.n_id[0])
        assert batch.n_id.tolist() == list(range(first, min(first + 4, 10)))
        assert batch.num_nodes == len(batch.n_id)


def test_layers_of_a_batch() -> None:
    data = make_data()
    loader = LayerLoader(data, [20, 15, 10], input_nodes=data.train_mask, batch_size=16)
    targets = []
    for batch in loader:
        assert torch.equal(batch.x, data.x[batch.n_id])
        assert torch.equal(batch.y, data.y[batch.target_id])
        sizes = [size for _, _, size in batch.layers]
        assert sizes[0][0] == len(batch.n_id)
        assert sizes[-1][1] == batch.batch_size == len(batch.target_id) == len(batch.input_id)
        assert [size[1] for size in sizes[:-1]] == [size[0] for size in sizes[1:]]
        for (edge_index, weight, size), most in zip(batch.layers, [20, 15, 10], strict=True):
            assert size[0] <= most
            assert (edge_index < torch.tensor(size)[:, None]).all()
            assert weight.shape == edge_index.shape[1:]
        targets.append(batch.target_id)
    assert torch.equal(torch.cat(targets), data.train_mask.nonzero().flatten())


def test_one_sampled_layer_is_the_product_on_average() -> None:
    data = make_data()
    data.edge_weight = torch.rand(EDGES, generator=torch.Generator().manual_seed(2))
    data.x = torch.randn(NODES, 1, generator=torch.Generator().manual_seed(3))
    exact = normalized_adjacency(data.edge_index, data.edge_weight, NODES) @ data.x
    loader = LayerLoader(data, [25], batch_size=NODES)
    torch.manual_seed(0)
    found = []
    for _ in range(1500):
        (batch,) = loader
        ((source, target), weight, size) = batch.layers[0]
        sums = torch.zeros(size[1], 1).index_add(0, target, weight[:, None] * batch.x[source])
        found.append(sums)
    drawn = torch.stack(found).double()
    deviation = drawn.std(dim=0) / 1500**0.5
    assert ((drawn.mean(dim=0) - exact).abs() < 4.5 * deviation + 1e-6).all()


def test_graphs_without_edges() -> None:
    for name in ("neighbours", "layers", "nodes", "walks"):
        data = make_data(0)
        batches = list(LOADERS[name](data))
        assert sum(len(batch.n_id) for batch in batches) > 0
        if name == "neighbours":
            assert sum(len(batch.n_id) for batch in batches) == NODES
        if name == "layers":  # Â is the identity: a node's own row or nothing
            for batch in batches:
                edge_index, _, _ = batch.layers[-1]
                assert len(edge_index[1].unique()) == edge_index.shape[1]


class _Largest(TorchDispatchMode):
    """The most numbers that any result of an operation has."""

    most = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, list | tuple) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.most = max(self.most, tensor.numel())
        return out


def test_only_a_batchs_own_rows_are_copied() -> None:
    for name in LOADERS:
        data = make_data()
        data.x = torch.zeros(NODES, 1000)
        loader = LOADERS[name](data)
        with _Largest() as largest:  # type: ignore[no-untyped-call]
            rows = max(len(batch.n_id) for batch in loader)
        assert rows < NODES
        assert largest.most <= 1000 * rows


DATA = make_data()


BAD_INPUT: list[tuple[Callable[[], Any], str]] = [
    (lambda: NeighborLoader(DATA, []), "'num_neighbors' must be"),
    (lambda: NeighborLoader(DATA, [3, 0]), r"got \[3, 0\]"),
    (lambda: NeighborLoader(DATA, [-2]), "1 or more"),
    (lambda: NeighborLoader(DATA, [3], batch_size=0), "'batch_size' must be 1 or more, got 0"),
    (lambda: NeighborLoader(DATA, [3], input_nodes=[NODES]), "'input_nodes' must be node ids"),
    (lambda: NeighborLoader(DATA, [3], input_nodes=[-1]), "got -1..-1"),
    (lambda: NeighborLoader(DATA, [3], input_nodes=[]), "'input_nodes' must be at least one"),
    (lambda: NeighborLoader(DATA, [3], input_nodes=DATA.y < 0), "at least one node, got none"),
    (lambda: NeighborLoader(DATA, [3], input_nodes=torch.ones(3) > 0), "a mask of 80 nodes"),
    (lambda: NeighborLoader(DATA, [3], input_nodes=torch.ones(3)), "a vector of node ids"),
    (lambda: next(iter(NeighborLoader(DATA, [3], [1, 1], batch_size=2))), "unique"),
    (lambda: NeighborLoader(Data(x=DATA.x), [3]), "'data' has no edge_index"),
    (
        lambda: NeighborLoader(DATA, [3], batch_sampler=[[0]]),
        "'batch_sampler' is not supported",
    ),
    (
        lambda: NeighborLoader(DATA, [3], sampler=[0], shuffle=True),
        "'shuffle' must be left out beside a sampler",
    ),
    (
        lambda: NeighborLoader(Data(x=DATA.x[:9], edge_index=DATA.edge_index), [3]),
        r"'edge_index' must be node ids in 0\.\.8",
    ),
    (
        lambda: NeighborLoader(Data(x=DATA.x, edge_index=DATA.x), [3]),
        r"'edge_index' must be an integer tensor",
    ),
    (
        lambda: NeighborLoader(Data(edge_index=DATA.edge_index[:, :0], num_nodes=0), [3]),
        "'data' has no nodes",
    ),
    (lambda: LayerLoader(DATA, []), "'num_samples' must be"),
    (lambda: LayerLoader(DATA, [0]), "'num_samples' must be"),
    (lambda: LayerLoader(DATA, [3], batch_size=0), "'batch_size' must be"),
    (lambda: LayerLoader(DATA, [3], input_nodes=[99]), "'input_nodes' must be"),
    (
        lambda: LayerLoader(Data(edge_index=DATA.edge_index, num_nodes=NODES), [3]),
        "node features x",
    ),
    (lambda: SaintRandomWalkLoader(DATA, 9, 0), "'walk_length' must be 1 or more, got 0"),
    (lambda: SaintRandomWalkLoader(DATA, 0, 2), "'batch_size' must be 1 or more, got 0"),
    (lambda: SaintNodeLoader(DATA, 9, num_steps=0), "'num_steps' must be"),
    (lambda: SaintNodeLoader(DATA, 9, sample_coverage=-1), "'sample_coverage' must be"),
    (lambda: SaintNodeLoader(Data(x=DATA.x), 9), "'data' has no edge_index"),
    (lambda: SaintEdgeLoader(make_data(0), 9), "'data' has no edges"),
    (
        lambda: SaintNodeLoader(Data(**DATA.to_dict(), node_norm=DATA.y), 9),
        "has a node_norm already",
    ),
]


def test_bad_input_is_refused_in_one_line() -> None:
    for call, message in BAD_INPUT:
        with pytest.raises(InputError, match=message) as caught:
            call()
        assert "\n" not in str(caught.value)


def test_a_sampler_of_ones_own() -> None:
    numbers = [5, 3, 3, 1]
    loader = NeighborLoader(make_data(), [2], batch_size=1, sampler=numbers)
    assert [int(batch.n_id[0]) for batch in loader] == numbers
    assert isinstance(loader, SeededLoader)
    drop = NeighborLoader(make_data(), [2], batch_size=30, drop_last=True)
    assert [batch.batch_size for batch in drop] == [30, 30]
    seen: list[int] = []
    first = SeededLoader(range(3), collate_fn=np.asarray, worker_init_fn=seen.append)
    assert first.worker_init_fn is not None
    first.worker_init_fn(7)
    assert seen == [7]


@pytest.mark.parametrize("as_list", [True, False])
def test_names_are_those_of_the_sampled_nodes(as_list: bool) -> None:
    """PyG takes a list as long as there are nodes for a tensor, and cannot cut it."""
    data = make_data()
    del data.edge_attr
    names = [f"n{number}" for number in range(NODES)]
    data.node_names = names if as_list else Names.of(names)
    loaders = [
        NeighborLoader(data, [3], batch_size=7),
        SaintNodeLoader(data, 9, num_steps=2, sample_coverage=0),
    ]
    for loader in loaders:
        for batch in loader:
            found = from_pyg(batch).node_names
            assert found is not None
            assert list(found) == [names[number] for number in batch.n_id.tolist()]
            assert 0 < len(found) < NODES
