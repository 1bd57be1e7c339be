"""Comparisons run models with input encoders on what these make of the features."""

import numpy as np
import pytest
import torch
from conftest import make_arrays

from bignn.config import ConvName
from bignn.graph import from_arrays
from bignn.lab.bench.compared_problem import ComparedProblem
from bignn.lab.bench.contenders import Packed
from bignn.nn import GNN


@pytest.mark.parametrize("conv", ["gcn", "sage"])
def test_packed_contenders_read_encoded_features(conv: ConvName) -> None:
    arrays = make_arrays()
    x = np.random.default_rng(0).standard_normal((len(arrays["y"]), 10)).astype(np.float32)
    graph = from_arrays({**arrays, "x": x}, name="dense")
    binary = GNN(10, 8, 2, 2, conv=conv, binarize="both", input_bits="learned:7")
    binary.fit_input(torch.from_numpy(x))
    contender = Packed(ComparedProblem(graph, GNN(10, 8, 2, 2, conv=conv), binary.eval()))
    contender.load()
    assert contender.graph.num_features == 70
    classes = binary.predict(torch.from_numpy(x), torch.from_numpy(graph.edge_index))
    assert np.array_equal(contender.run(), classes.numpy())
