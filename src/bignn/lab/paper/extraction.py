"""The paper's Fig. 2 with real numbers: one binary feature extraction worked through.

Three nodes of PubMed, one per class, eight of its features (standardised, as a Bi-GCN's input), and
as weights what tells the classes apart: the mean of each class's training nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bignn import bits
from bignn.graph import load

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Extraction:
    """Both factors, their signs and scales, and both products.

    Attributes:
        h: features [3, 8]; f their signs, beta their scales [3].
        w: weights [8, 3]; b their signs, alpha their scales [3].
        agreements: how many of the eight bits of a node and a column agree, XNOR and popcount
            [3, 3]; ``dot = 2 agreements - 8``.
        binary: ``beta alpha dot`` [3, 3], what Bi-GCN computes.
        exact: ``h w``, what GCN computes.

    """

    h: Floats
    w: Floats
    f: NDArray[np.int8]
    b: NDArray[np.int8]
    beta: Floats
    alpha: Floats
    agreements: NDArray[np.int64]
    binary: Floats
    exact: Floats


def extraction(num_features: int = 8) -> Extraction:
    """Compute the example; deterministic, without training."""
    graph = load("pubmed")
    x, y, train = graph.dense_x().astype(np.float64), graph.y, graph.train_idx
    assert y is not None
    assert train is not None
    x = (x - x.mean(axis=0)) / x.std(axis=0)
    means = np.stack([x[train[y[train] == label]].mean(axis=0) for label in range(3)], axis=1)
    telling = np.sort(np.argsort(-means.std(axis=1), kind="stable")[:num_features])
    nodes = np.array([train[y[train] == label][0] for label in range(3)])
    h, w = x[np.ix_(nodes, telling)], means[telling]
    f, b = bits.sign(h), bits.sign(w)
    beta, alpha = np.abs(h).mean(axis=1), np.abs(w).mean(axis=0)
    words = bits.pack(h.astype(np.float32)), bits.pack(w.T.astype(np.float32))
    padding = 64 - num_features  # zero on both sides, so always in agreement
    xnor = ~(words[0][:, None, :] ^ words[1][None, :, :])
    agreements = np.bitwise_count(xnor).sum(axis=2).astype(np.int64) - padding
    dot = 2 * agreements - num_features
    return Extraction(h, w, f, b, beta, alpha, agreements, np.outer(beta, alpha) * dot, h @ w)


def diagram(example: Extraction) -> str:
    """Write the example as text, step by step."""
    lines = [f"{'features H, three nodes':<54}{'bits F = sign(H)':<20}scale β = mean|H|"]
    for row, signs, beta in zip(example.h, example.f, example.beta, strict=True):
        numbers = " ".join(f"{value:+5.2f}" for value in row)
        lines.append(f"  {numbers}     {_bits(signs)}            {beta:.2f}")
    lines += [
        "",
        "weights W (3 classes, transposed)                     bits B = sign(W)    scale α",
    ]
    for column, signs, alpha in zip(example.w.T, example.b.T, example.alpha, strict=True):
        numbers = " ".join(f"{value:+5.2f}" for value in column)
        lines.append(f"  {numbers}     {_bits(signs)}            {alpha:.2f}")
    length = len(example.w)
    f, b = example.f[0], example.b[:, 0]
    same = "".join("1" if one == other else "0" for one, other in zip(f, b, strict=True))
    count = int(example.agreements[0, 0])
    dot = 2 * count - length
    lines += [
        "",
        "node 1, class 1:",
        f"  XNOR     {_bits(f)} ^ {_bits(b)}, inverted    {same}",
        f"  popcount {count} of {length} agree, so F · B = 2 · {count} - {length} = {dot:+d}",
        f"  scaled   β α F · B = {example.beta[0]:.2f} · {example.alpha[0]:.2f} · ({dot:+d}) = "
        f"{example.binary[0, 0]:+.2f}   (the float product: {example.exact[0, 0]:+.2f})",
        "",
        "all nine products      1 bit                      float",
    ]
    for one, other in zip(example.binary, example.exact, strict=True):
        ours = " ".join(f"{value:+6.2f}" for value in one)
        theirs = " ".join(f"{value:+6.2f}" for value in other)
        lines.append(f"                       {ours}      {theirs}")
    return "\n".join(lines)


def _bits(signs: NDArray[np.int8]) -> str:
    return "".join("1" if sign > 0 else "0" for sign in signs)
