"""The samplers of csrc/sampling.cpp in NumPy, with the same results to the last element."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from bignn.kernels.random import below, random_words

Ints = NDArray[np.int64]


def sort_edges(rows: Ints, columns: Ints, num_nodes: int) -> tuple[Ints, NDArray[np.int32], Ints]:
    """Sort edges by row, stably: ``(offsets, ids, numbers)``."""
    numbers = np.argsort(rows, kind="stable")
    offsets = np.zeros(num_nodes + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=num_nodes), out=offsets[1:])
    return offsets, columns[numbers].astype(np.int32), numbers


def sample_neighbours(
    offsets: Ints, ids: NDArray[Any], seeds: Ints, fanouts: Ints, replace: bool, seed: int
) -> tuple[Ints, Ints, Ints, Ints, list[int], list[int]]:
    """Sample: ``(nodes, sources, targets, places, nodes per hop, edges per hop)``."""
    number_of = np.full(len(offsets) - 1, -1, dtype=np.int64)
    number_of[seeds] = np.arange(len(seeds))
    nodes, sources, targets, places = [seeds], [], [], []
    num_found = len(seeds)
    for fanout in fanouts.tolist():
        frontier = nodes[-1]
        start, size = offsets[frontier], np.diff(offsets)[frontier]
        takes_all = (size == 0) | (fanout < 0) | (size <= fanout if not replace else False)
        count = np.where(takes_all, size, fanout)
        row = np.repeat(np.arange(len(frontier)), count)
        member = np.arange(len(row)) - (np.cumsum(count) - count)[row]
        if not takes_all.all():
            keys = random_words(seed, frontier[~takes_all])[:, None]
            words = random_words(keys, np.arange(fanout))
            drawn = (
                _draws(words, size[~takes_all]) if replace else _subsets(words, size[~takes_all])
            )
            member[~takes_all[row]] = drawn.ravel()
        place = start[row] + member
        found = ids[place].astype(np.int64)
        new, first = np.unique(found[number_of[found] < 0], return_index=True)
        new = new[np.argsort(first)]
        number_of[new] = num_found + np.arange(len(new))
        targets.append(num_found - len(frontier) + row)
        num_found += len(new)
        nodes.append(new)
        sources.append(number_of[found])
        places.append(place)
    none = np.empty(0, dtype=np.int64)
    return (
        np.concatenate(nodes),
        np.concatenate([none, *sources]),
        np.concatenate([none, *targets]),
        np.concatenate([none, *places]),
        [len(some) for some in nodes],
        [len(some) for some in places],
    )


def _draws(words: NDArray[np.uint64], size: Ints) -> Ints:
    return below(words, size[:, None])


def _subsets(words: NDArray[np.uint64], size: Ints) -> Ints:
    """Draw subsets by Floyd's method, all equally likely; one member per column of words."""
    count = words.shape[1]
    chosen = np.empty(words.shape, dtype=np.int64)
    for k in range(count):
        newest = size - count + k
        member = below(words[:, k], newest + 1)
        is_taken = (chosen[:, :k] == member[:, None]).any(axis=1)
        chosen[:, k] = np.where(is_taken, newest, member)
    return chosen


def random_walks(offsets: Ints, ids: NDArray[Any], seed: int, walks: Ints) -> None:
    """Fill walks [W, length + 1], whose first column holds the roots."""
    keys = random_words(seed, np.arange(len(walks)))
    for step in range(walks.shape[1] - 1):
        at = walks[:, step]
        size = offsets[at + 1] - offsets[at]
        choice = offsets[at] + below(random_words(keys, np.array(step)), size)
        moves = size > 0
        walks[:, step + 1] = at
        walks[moves, step + 1] = ids[choice[moves]]


def edges_between(
    offsets: Ints, ids: NDArray[Any], rows: Ints, columns: Ints
) -> tuple[Ints, Ints, Ints]:
    """Find the edges from ``columns`` to ``rows``: ``(sources, targets, places)``."""
    number_of = np.full(len(offsets) - 1, -1, dtype=np.int64)
    number_of[columns] = np.arange(len(columns))
    size = offsets[rows + 1] - offsets[rows]
    target = np.repeat(np.arange(len(rows)), size)
    place = np.arange(len(target)) + (offsets[rows] - (np.cumsum(size) - size))[target]
    source = number_of[ids[place]]
    inside = source >= 0
    return source[inside], target[inside], place[inside]
