"""What predictions read and give: features as values, chosen rows, and forms of the outputs."""

from __future__ import annotations

from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bignn.errors import input_error, printable
from bignn.graph.names import Names
from bignn.kernels.layer import SparseBits
from bignn.runtime.features import take_features
from bignn.runtime.hetero_graph import PackedNodes
from bignn.runtime.packed_graph import PackedGraph
from bignn.runtime.values import Bits, Value

#: Numbers from here on are no 64-bit ones.
_TOO_LARGE = 2**63
#: What a prediction gives of each node, or of each graph.
Output = Literal["classes", "probabilities", "labels", "label_probabilities", "logits", "values"]

#: Outputs that are of classes which exclude each other.
OF_CLASSES = ("classes", "probabilities", "logits")


def check_output(output: str) -> None:
    """Refuse an output that is not known."""
    if output not in get_args(Output):
        raise input_error("output", f"one of {list(get_args(Output))}", repr(output))


def chosen_output(output: Output | None, usual: Output) -> Output:
    """Return the output that was asked for, if it is known; the model's usual one for None."""
    if output is None:
        return usual
    check_output(output)
    return output


def gives_classes(output: Output, usual: Output) -> bool:
    """Return whether the largest number of a row, if it has several, is the class predicted."""
    return usual == "classes" and output in ("classes", "probabilities", "logits")


def check_no_plan(plan: str | None) -> None:
    """Refuse a plan where there is nothing to plan."""
    if plan is not None:
        raise input_error("plan", "None for a model that is not all bits", repr(plan))


def in_given_order(values: NDArray[Any], places: NDArray[np.int64] | None) -> NDArray[Any]:
    """Put the rows of a graph's nodes back into the order that nodes were given in."""
    return values if places is None else values[places]


def finished(values: NDArray[Any], output: Output) -> NDArray[Any]:
    """Make of logits what was asked for; classes are left as they are."""
    if output == "labels":
        return values > 0
    if output == "label_probabilities":
        with np.errstate(over="ignore"):
            values = np.float32(1) / (np.float32(1) + np.exp(-values))
    if output == "probabilities":
        values = np.exp(values - values.max(axis=1, keepdims=True))
        values /= values.sum(axis=1, keepdims=True)
    return values


def scores_of(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the score of each row's class: its probability, the softmax of the largest logit.

    It is computed in float64 and rounded once, so that equal logits have equal scores everywhere.
    """
    above = logits.astype(np.float64) - logits.max(axis=1, keepdims=True)
    scores: NDArray[np.float32] = (1 / np.exp(above).sum(axis=1)).astype(np.float32)
    return scores


def input_value(graph: PackedGraph | PackedNodes, nodes: NDArray[np.int64] | None) -> Value:
    """Return features of all nodes or of some, as a value."""
    features = graph.features
    assert features is not None
    if isinstance(features, np.ndarray):
        return features if nodes is None else features[nodes]
    assert graph.beta is not None
    some = features if nodes is None else take_features(features, nodes)
    words = (some.dense() if isinstance(some, SparseBits) else some).words
    return Bits(words, graph.beta if nodes is None else graph.beta[nodes], graph.num_features)


def numbered(
    argument: str,
    given: Any,
    found: NDArray[Any],
    what: str,
    names: Names | None,
    *,
    by_name: bool = True,
) -> NDArray[Any]:
    """Replace names by numbers, in an array of any shape; whole numbers among them stay.

    ``found`` is ``given`` as an array, and is returned as it is where it has no texts.
    """
    if found.dtype.kind == "U" and isinstance(given, list | tuple):
        found = np.array(given, dtype=np.object_)  # NumPy makes texts of numbers among texts
    if found.dtype.kind not in "UO" or found.size == 0:
        return found
    items = found.ravel().tolist()
    texts = [item for item in items if isinstance(item, str)]
    if not texts:
        return found
    if names is None:
        why = ": the graph has no names" if by_name else ", names are not known here"
        raise input_error(argument, f"{what}{why}", f"'{printable(texts[0])}'")
    numbers = iter(names.numbers(texts, argument).tolist())
    made = [next(numbers) if isinstance(item, str) else item for item in items]
    for item in made:
        if isinstance(item, bool) or not isinstance(item, int) or abs(item) >= _TOO_LARGE:
            raise input_error(argument, f"names or {what}", printable(item, 40))
    return np.array(made, dtype=np.int64).reshape(found.shape)


def checked_rows(
    argument: str,
    nodes: ArrayLike,
    num_rows: int,
    what: str,
    names: Names | None = None,
    *,
    by_name: bool = False,
) -> NDArray[np.int64]:
    """Check a list of rows that are wanted; ``what`` says what they are numbers of.

    With ``by_name``, texts are looked up among the names, where there are any.
    """
    try:
        found = np.asarray(nodes)
    except ValueError:  # lists of unequal lengths
        raise input_error(argument, f"a list of {what}", "lists of several lengths") from None
    if found.ndim < 2:
        found = numbered(argument, nodes, found, what, names, by_name=by_name)
    ids = np.atleast_1d(found)
    if ids.size == 0:
        return ids.astype(np.int64)
    if ids.dtype.kind not in "iu" or ids.ndim != 1:
        got = f"{ids.dtype} of shape {list(ids.shape)}"
        raise input_error(
            argument, f"a list of {what}", got, "for a mask, pass np.flatnonzero(mask)"
        )
    if int(ids.min()) < 0 or int(ids.max()) >= num_rows:
        bad = int(ids.min()) if int(ids.min()) < 0 else int(ids.max())
        raise input_error(argument, f"{what} in 0..{num_rows - 1}", bad)
    return ids.astype(np.int64)
