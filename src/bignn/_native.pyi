"""Types of the native extension (csrc/module.cpp)."""

from typing import Any

from numpy.typing import NDArray

panel_width: int
best: str

def instruction_sets() -> list[tuple[str, bool, str]]: ...
def pack(x: NDArray[Any], words: NDArray[Any], isa: str) -> None: ...
def make_panels(b: NDArray[Any], panels: NDArray[Any]) -> None: ...
def xnor(
    a: NDArray[Any],
    panels: NDArray[Any],
    num_bits: int,
    out: NDArray[Any],
    begin: int,
    end: int,
    isa: str,
) -> None: ...
