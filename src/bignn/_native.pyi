"""Types of the native extension (csrc/module.cpp, program_module.cpp, sampling_module.cpp)."""

from typing import Any

from numpy.typing import NDArray

panel_width: int
best: str

def instruction_sets() -> list[tuple[str, bool, str]]: ...
def pack(x: NDArray[Any], words: NDArray[Any], isa: str) -> None: ...
def make_panels(b: NDArray[Any], order: NDArray[Any], panels: NDArray[Any]) -> None: ...
def record_layout(num_columns: int, bytes_per_column: int) -> tuple[int, list[int]]: ...
def product_bytes(num_inputs: int, num_outputs: int, isa: str) -> int: ...
def make_product(b: NDArray[Any], num_inputs: int, product: NDArray[Any], isa: str) -> None: ...

keep_bits: int

def draw_masks(
    seed: int, keep: int, among: NDArray[Any], masks: NDArray[Any], isa: str
) -> None: ...
def masked_rows(
    rows: NDArray[Any],
    masks: NDArray[Any],
    panels: NDArray[Any],
    num_bits: int,
    out: NDArray[Any],
    isa: str,
) -> None: ...
def masked_gradient(
    rows: NDArray[Any],
    masks: NDArray[Any],
    num_bits: int,
    g: NDArray[Any],
    out: NDArray[Any],
    isa: str,
) -> None: ...
def keep_masked(x: NDArray[Any], masks: NDArray[Any], out: NDArray[Any], isa: str) -> None: ...
def set_num_threads(count: int) -> None: ...
def num_threads() -> int: ...
def xnor(
    a: NDArray[Any],
    panels: NDArray[Any],
    num_bits: int,
    out: NDArray[Any],
    begin: int,
    end: int,
    isa: str,
) -> None: ...
def sort_edges(
    rows: NDArray[Any],
    columns: NDArray[Any],
    offsets: NDArray[Any],
    ids: NDArray[Any],
    numbers: NDArray[Any],
) -> None: ...
def sample_neighbours(
    offsets: NDArray[Any],
    ids: NDArray[Any],
    numbers: NDArray[Any] | None,
    seeds: NDArray[Any],
    fanouts: NDArray[Any],
    replace: bool,
    seed: int,
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], list[int], list[int]]: ...
def random_walks(
    offsets: NDArray[Any], ids: NDArray[Any], seed: int, walks: NDArray[Any]
) -> None: ...
def edges_between(
    offsets: NDArray[Any],
    ids: NDArray[Any],
    numbers: NDArray[Any] | None,
    rows: NDArray[Any],
    columns: NDArray[Any],
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...

class Program:
    def __init__(self, steps: list[dict[str, Any]], isa: str) -> None: ...
    def run(self, num_steps: int, out: NDArray[Any] | None) -> tuple[int, list[float]]: ...
    def run_rows(self, begin: int, end: int, values: NDArray[Any]) -> None: ...
