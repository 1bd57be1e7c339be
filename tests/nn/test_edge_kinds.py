"""Kinds of neighbourhood sum: matrices of torch, of rounded layers and of packed graphs agree."""

from typing import Any, get_args

import numpy as np
import pytest
import torch

from bignn.kernels.edge_kinds import EDGE_KINDS, weigh_edges
from bignn.nn.adjacency import Aggregation, aggregate, factored_adjacency, normalized_adjacency

N = 12


def edges_of(seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Directed edges, some twice, with self-loops; node N - 1 has none."""
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(0, N - 1, (2, 40), generator=generator)
    edges[:, :2] = 3
    return edges, torch.rand(40, generator=generator) + 0.1


@pytest.mark.parametrize("aggr", get_args(Aggregation))
def test_the_forms_of_a_kind_agree(aggr: Any) -> None:
    for seed in range(3):
        edges, weight = edges_of(seed)
        x = torch.randn(N, 5, dtype=torch.float64)
        for given in (None, weight):
            matrix = normalized_adjacency(edges, given, N, torch.float64, aggr) @ x
            factored = factored_adjacency(edges, given, N, aggr)
            dense = factored.matrix.to_dense().double()
            for factor, dim in ((factored.row_factor, 1), (factored.column_factor, 0)):
                dense = dense if factor is None else dense * factor.unsqueeze(dim)
            assert torch.allclose(matrix, dense @ x, atol=1e-6)
            if given is not None:
                learned = given.clone().requires_grad_()
                assert torch.allclose(aggregate(edges, learned, x, aggr), matrix, atol=1e-6)


def test_weights_count_where_the_kind_says_so() -> None:
    edges, weight = edges_of(0)
    source, target = edges.numpy()
    for aggr, kind in EDGE_KINDS.items():
        with_weights = weigh_edges(aggr, source, target, weight.numpy(), N)
        assert (with_weights.weights is not None) == kind.is_weighted
        loops = with_weights.source == with_weights.target
        expected = {"added": N, "removed": 0, "given": int((source == target).sum())}
        assert loops.sum() == expected[kind.loops]
        if aggr == "gcn_improved":
            assert with_weights.weights is not None
            assert with_weights.weights[loops][N - 1] == 2
            assert weigh_edges(aggr, source, target, None, N).weights is None
        assert np.isfinite(with_weights.target_factor).all()
