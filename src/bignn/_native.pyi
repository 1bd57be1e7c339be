"""Types of the native extension (csrc/*module.cpp)."""

from typing import Any

from numpy.typing import NDArray

panel_width: int
best: str

def instruction_sets() -> list[tuple[str, bool, str]]: ...
def pack(x: NDArray[Any], words: NDArray[Any], isa: str) -> None: ...
def make_panels(b: NDArray[Any], panels: NDArray[Any]) -> None: ...

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
def round_rows(
    offsets: NDArray[Any],
    ids: NDArray[Any],
    weights: NDArray[Any] | None,
    beta: NDArray[Any],
    column_factor: NDArray[Any] | None,
    row_factor: NDArray[Any] | None,
    edge_bits: int,
    q: NDArray[Any],
    scale: NDArray[Any],
    isa: str,
) -> None: ...
def sum_rows(
    offsets: NDArray[Any],
    ids: NDArray[Any],
    places: NDArray[Any] | None,
    weights: NDArray[Any],
    x: NDArray[Any],
    scale: NDArray[Any] | None,
    largest: int,
    out: NDArray[Any],
    isa: str,
) -> None: ...
def binarize(h: NDArray[Any], words: NDArray[Any], beta: NDArray[Any], isa: str) -> None: ...
def checksum(octets: NDArray[Any]) -> int: ...
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
def rows_and_sources(
    offsets: NDArray[Any], ids: NDArray[Any], rows: NDArray[Any]
) -> NDArray[Any]: ...
def take_rows(
    offsets: NDArray[Any],
    ids: NDArray[Any],
    weights: NDArray[Any] | None,
    rows: NDArray[Any],
    taken: NDArray[Any],
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None, NDArray[Any]]: ...
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

class Attention:
    def __init__(
        self,
        heads: int,
        averages: bool,
        slope: float,
        values: NDArray[Any],
        sigma: NDArray[Any],
        end_scale: NDArray[Any],
    ) -> None: ...

class OwnPart:
    def __init__(self, words: NDArray[Any], scale: NDArray[Any]) -> None: ...

class LayerWeights:
    def __init__(
        self,
        words: NDArray[Any],
        num_inputs: int,
        scale: NDArray[Any],
        shift: NDArray[Any],
        edge_bits: int,
        own: OwnPart | None = None,
        attention: Attention | None = None,
    ) -> None: ...
    @property
    def bytes_per_column(self) -> int: ...
    def widen(self, overflowed: int) -> None: ...

class Edges:
    def __init__(
        self,
        offsets: NDArray[Any],
        ids: NDArray[Any],
        weights: NDArray[Any] | None,
        target_factor: NDArray[Any],
        own_ids: NDArray[Any] | None,
        num_sources: int,
    ) -> None: ...

class DenseBits:
    def __init__(self, words: NDArray[Any]) -> None: ...

class SparseBits:
    def __init__(
        self, offsets: NDArray[Any], inputs: NDArray[Any], base: NDArray[Any], num_bits: int
    ) -> None: ...

class PackedLayers:
    def __init__(
        self, isa: str, features: DenseBits | SparseBits, source_factor: NDArray[Any]
    ) -> None: ...
    def add(
        self,
        weights: LayerWeights,
        edges: Edges,
        way: str,
        out_scale: NDArray[Any] | None,
        keeps_values: bool,
        keeps_bits: bool,
    ) -> None: ...
    def run_to_classes(self, classes: NDArray[Any]) -> None: ...
    def run_to_values(self, values: NDArray[Any]) -> None: ...
    def run_kept(self) -> None: ...
    def run_hidden(self) -> None: ...
    def run_rows(self, begin: int, end: int, values: NDArray[Any]) -> None: ...
    def block_to_classes(self, edges: Edges, classes: NDArray[Any]) -> None: ...
    def block_to_values(self, edges: Edges, values: NDArray[Any]) -> None: ...
    def block_to_bits(self, edges: Edges, words: NDArray[Any], beta: NDArray[Any]) -> None: ...
    def seconds(self, layer: int) -> float: ...
    def bytes_per_column(self, layer: int) -> int: ...
    def kept_values(self, layer: int) -> NDArray[Any]: ...
    def kept_words(self, layer: int) -> NDArray[Any]: ...
    def kept_beta(self, layer: int) -> NDArray[Any]: ...

class LiveLayers:
    def __init__(
        self,
        isa: str,
        offsets: NDArray[Any],
        ids: NDArray[Any],
        weights: NDArray[Any] | None,
        has_loops: bool,
        keeps_sums: bool,
        words: NDArray[Any],
        beta: NDArray[Any],
    ) -> None: ...
    def add(
        self, weights: LayerWeights, loops: str, factor: str, is_weighted: bool, own_weight: float
    ) -> None: ...
    def refresh(self) -> None: ...
    def update(
        self,
        nodes: NDArray[Any],
        num_added: int,
        words: NDArray[Any],
        beta: NDArray[Any],
        removed: NDArray[Any],
        added: NDArray[Any],
        weights: NDArray[Any] | None,
        removed_nodes: NDArray[Any],
    ) -> NDArray[Any]: ...
    def first_missing(self, edges: NDArray[Any]) -> int: ...
    def classes(self, nodes: NDArray[Any], out: NDArray[Any]) -> None: ...
    def values(self, nodes: NDArray[Any], out: NDArray[Any]) -> None: ...
    def state(self, number: int) -> tuple[NDArray[Any], NDArray[Any]]: ...
    def edges(
        self, nodes: NDArray[Any] | None = None
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any] | None]: ...
    def inputs(
        self, nodes: NDArray[Any], loops: str, factor: str, is_weighted: bool, own_weight: float
    ) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]: ...
    @property
    def work(self) -> list[tuple[int, int, int, float]]: ...
    @property
    def num_nodes(self) -> int: ...
    @property
    def nbytes(self) -> int: ...

statistics_rows: int

def unsound_row(x: NDArray[Any]) -> int: ...
def pack_features(
    x: NDArray[Any],
    normalizes_rows: bool,
    mean: NDArray[Any] | None,
    scale: NDArray[Any] | None,
    words: NDArray[Any],
    beta: NDArray[Any],
    isa: str,
) -> None: ...
def feature_statistics(
    x: NDArray[Any],
    normalizes_rows: bool,
    mean: NDArray[Any],
    squares: NDArray[Any],
    least: NDArray[Any],
    largest: NDArray[Any],
) -> None: ...
def count_buckets(
    sources: NDArray[Any],
    targets: NDArray[Any],
    num_nodes: int,
    shift: int,
    counts: NDArray[Any],
) -> int: ...
def fill_buckets(
    sources: NDArray[Any],
    targets: NDArray[Any],
    shift: int,
    places: NDArray[Any],
    out: NDArray[Any],
) -> None: ...
def sort_bucket(
    edges: NDArray[Any], offsets: NDArray[Any], ids: NDArray[Any], merges: bool
) -> int: ...

class SyntheticGraph:
    def __init__(
        self,
        seed: int,
        num_nodes: int,
        num_classes: int,
        multiplier: int,
        inverse: int,
        shift: int,
        mean_degree: float,
        most_neighbours: int,
        own_class_share: int,
        strength: float,
    ) -> None: ...
    def classes(self, begin: int, end: int, out: NDArray[Any]) -> None: ...
    def degrees(self, begin: int, end: int, offsets: NDArray[Any]) -> None: ...
    def neighbours(self, begin: int, end: int, offsets: NDArray[Any], ids: NDArray[Any]) -> int: ...
    def features(self, begin: int, end: int, x: NDArray[Any]) -> None: ...
