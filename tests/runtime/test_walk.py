"""The walk of features from a file to classes: docs/design.md lists every function on it."""

import inspect
import re
import sys
from collections import Counter
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest
from conftest import make_packed_model

import bignn
from bignn.graph import Graph, SparseRows
from bignn.kernels.layer import Edges, SparseBits
from bignn.kernels.packed_layers import PackedLayers
from bignn.runtime.packed_graph import PackedGraph

_native = pytest.importorskip("bignn._native")

SOURCE = Path(bignn.__file__).parent
DESIGN = Path(__file__).parents[2] / "docs" / "design.md"
CARRIERS = (
    *(SparseRows, Graph, SparseBits, PackedGraph, PackedLayers),
    *(_native.SparseBits, _native.PackedLayers),
)
STORED = 49216  # words in Cora's papers: no other array of the graph is as long


def listed() -> dict[str, str]:
    """Returns the functions of the walk and what is said of each."""
    section = DESIGN.read_text().partition("**The walk of a node's features")[2]
    block = re.search(r"```\n(.*?)```", section, re.DOTALL)
    assert block is not None
    lines = (line.split(maxsplit=1) for line in block[1].splitlines())
    return {words[0]: " ".join(words[1:]) for words in lines}


def carries_features(value: Any) -> bool:
    """Returns whether a value is, or directly holds, features in any of their forms."""
    if isinstance(value, np.ndarray):
        return value.size == STORED
    if isinstance(value, dict):
        return any(carries_features(part) for part in value.values())
    if isinstance(value, tuple | list):
        return any(carries_features(part) for part in value)
    return isinstance(value, CARRIERS)


def is_about_edges(value: Any) -> bool:
    return isinstance(value, Edges) or (isinstance(value, list) and is_about_edges(value[0]))


class Walk:
    """Notes the calls of the package's functions that take or return features."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, bool]] = []
        self._places: list[int | None] = []
        self._generators: list[FrameType] = []

    def __call__(self, frame: FrameType, event: str, result: Any) -> None:
        code = frame.f_code
        if event not in ("call", "return") or not code.co_filename.startswith(str(SOURCE)):
            return
        file = Path(code.co_filename).relative_to(SOURCE).with_suffix("")
        name = ".".join([*file.parts, code.co_qualname])
        if event == "return":
            place = self._places.pop()
            if place is not None:
                taken = self.calls[place][1]
                left_out = is_about_edges(result) or type(result) is int  # edges, sizes
                self.calls[place] = name, (taken or carries_features(result)) and not left_out
            return
        is_resumed = frame in self._generators
        if code.co_flags & inspect.CO_GENERATOR:
            self._generators.append(frame)
        if "<" in name or is_resumed:  # a comprehension, or the rest of a generator
            self._places.append(None)
            return
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        taken = any(carries_features(frame.f_locals[argument]) for argument in arguments)
        self._places.append(len(self.calls))
        self.calls.append((name, taken))


def test_the_walk_in_the_documents_is_the_one_that_runs() -> None:
    model = make_packed_model([1433, 64, 7])
    walk = Walk()
    sys.setprofile(walk)
    try:
        classes = model.predict(bignn.load("cora"))
    finally:
        sys.setprofile(None)
    assert classes.shape == (2708,)
    walked = [name for name, carried in walk.calls if carried and not is_property(name)]
    documented = listed()
    assert list(dict.fromkeys(walked)) == list(documented)
    often = {name for name, count in Counter(walked).items() if count > 1}
    said_often = ("each array", "twice")
    assert often == {
        name for name, said in documented.items() if any(words in said for words in said_often)
    }


def is_property(name: str) -> bool:
    *_, owner, attribute = name.split(".")
    classes = {carrier.__name__: carrier for carrier in CARRIERS}
    found = getattr(classes.get(owner), attribute, None)
    return isinstance(found, property | cached_property)
