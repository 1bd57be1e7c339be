"""The benchmark of edge bits compares what it says."""

import edge_bits
import pytest
from conftest import make_graph


@pytest.mark.parametrize("bits", [None, 6, 7, 8])
def test_rows_have_the_bits_of_their_columns(bits: int | None) -> None:
    run = edge_bits.row("cora", "bi-gcn", bits, distill=False)
    assert run.recipe(make_graph(9, 70)).edge_bits == bits
