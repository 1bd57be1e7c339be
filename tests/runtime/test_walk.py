"""The walk of features from a file to classes, as docs/design.md lists it."""

import re
import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

from conftest import make_packed_model

import bignn

SOURCE = Path(bignn.__file__).parent
DESIGN = Path(__file__).parents[2] / "docs" / "design.md"


def listed() -> list[str]:
    section = DESIGN.read_text().partition("**The walk of a node's features")[2]
    block = re.search(r"```\n(.*?)```", section, re.DOTALL)
    assert block is not None
    return [line.split()[0] for line in block[1].splitlines()]


def test_the_walk_in_the_documents_is_the_one_that_runs() -> None:
    model = make_packed_model([1433, 64, 7])
    called: list[str] = []

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(str(SOURCE)):
            file = Path(frame.f_code.co_filename).relative_to(SOURCE).with_suffix("")
            called.append(".".join([*file.parts, frame.f_code.co_qualname]))

    sys.setprofile(note)
    try:
        classes = model.predict(bignn.load("cora"))
    finally:
        sys.setprofile(None)
    assert classes.shape == (2708,)
    counts = Counter(called)
    walk = listed()
    assert len(walk) > 10
    assert {name: counts[name] for name in walk} == dict.fromkeys(walk, 1)
    assert sorted(walk, key=called.index) == walk
