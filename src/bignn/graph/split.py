"""Random splits: fixed ones for datasets that are published without a split, and users' own."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real

import numpy as np
from numpy.typing import NDArray

from bignn.errors import input_error
from bignn.graph.graph import SPLITS, UNLABELLED

#: Percentages of the nodes for training, validation and test (seed 0), for datasets that are
#: published without a split.
FIXED = {
    "amazon-computers": (60, 20, 20),
    "amazon-photo": (60, 20, 20),
    "coauthor-cs": (60, 20, 20),
    "coauthor-physics": (60, 20, 20),
    "musae-github": (50, 25, 25),
}

#: Share of labelled nodes from which on a graph has many.
_MANY = 0.1


def has_many_labels(num_nodes: int, num_labelled: int) -> bool:
    """Whether a tenth of the nodes or more are training nodes, by whose labels much is learned."""
    return 0 < num_labelled >= _MANY * num_nodes


def random_split(
    y: NDArray[np.int64], percent: Sequence[float], seed: int = 0
) -> dict[str, NDArray[np.int64]]:
    """Split the labelled nodes at random; the parts are sorted, and empty ones are left out.

    With p = ``default_rng(seed).permutation(labelled nodes)``, which has n nodes, training is
    p[:a], validation p[a:b], test p[b:c]; a, b, c are the running sums of ``percent`` times
    n / 100, rounded down.
    """
    if isinstance(percent, str) or not all(isinstance(share, Real) for share in percent):
        raise input_error("split", "three percentages such as (60, 20, 20)", repr(percent))
    given = ",".join(f"{share:g}" for share in percent)
    if len(percent) != 3 or min(percent) < 0 or not 0 < sum(percent) <= 100:
        raise input_error("split", "three percentages adding up to at most 100", given)
    if sum(percent) <= 1:
        fix = "multiply fractions by 100"
        raise input_error("split", "percentages such as 60,20,20", given, fix)
    if 0 in percent[:2]:
        expected = "percentages with a share for training and for validation"
        raise input_error("split", expected, given)
    if seed < 0:
        raise input_error("seed", "0 or more", seed)
    labelled = np.random.default_rng(seed).permutation(np.flatnonzero(y != UNLABELLED))
    ends = np.floor(np.cumsum([0, *percent]) / 100 * labelled.size + 1e-9).astype(np.int64)
    parts = {key: np.sort(labelled[ends[part] : ends[part + 1]]) for part, key in enumerate(SPLITS)}
    for (key, nodes), share in zip(parts.items(), percent, strict=True):
        if share > 0 and nodes.size == 0:
            raise input_error(
                "split", "at least one node per part", f"none for {key} ({share:g} %)"
            )
    return {key: nodes for key, nodes in parts.items() if nodes.size}
