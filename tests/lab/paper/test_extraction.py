"""The worked example: its steps are those of the paper, by hand."""

from pathlib import Path

import numpy as np

from bignn.lab.paper.extraction import diagram, extraction

RESULTS = Path(__file__).parents[3] / "docs" / "results.md"


def test_the_steps_by_hand() -> None:
    found = extraction()
    assert found.h.shape == (3, 8)
    for node in range(3):
        for column in range(3):
            signs = np.where(found.h[node] >= 0, 1, -1), np.where(found.w[:, column] >= 0, 1, -1)
            dot = int((signs[0] * signs[1]).sum())
            assert 2 * found.agreements[node, column] - 8 == dot
            scales = np.abs(found.h[node]).mean() * np.abs(found.w[:, column]).mean()
            assert np.isclose(found.binary[node, column], scales * dot)
    assert np.allclose(found.exact, found.h @ found.w)


def test_bits_tell_the_classes_apart_as_floats_do() -> None:
    found = extraction()
    assert found.binary.argmax(axis=1).tolist() == found.exact.argmax(axis=1).tolist() == [0, 1, 2]


def test_the_results_show_it() -> None:
    assert f"```\n{diagram(extraction())}\n```" in RESULTS.read_text()
