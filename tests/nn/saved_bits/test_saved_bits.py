"""Training that keeps bits: the gradients of floats, and kernels that agree with plain torch."""

import gc

import numpy as np
import pytest
import torch
from conftest import make_arrays
from emulated_device import EmulatedDevice
from torch import Tensor

from bignn.nn import GCN
from bignn.nn import gcn_conv as conv_module
from bignn.nn.adjacency import factored_adjacency
from bignn.nn.features import BinaryRows
from bignn.nn.saved_bits import layer as layer_module
from bignn.nn.saved_bits.cuda import CudaBitKernels
from bignn.nn.saved_bits.kernels import (
    BitKernels,
    ColumnEnds,
    RowRounding,
    ScaledRows,
    kernels_for,
)
from bignn.nn.saved_bits.layer import MOST_INPUTS, convolution_on_bits
from bignn.nn.saved_bits.plain import PlainBitKernels
from bignn.nn.sparse import SparseMatrix
from bignn.ops import pack_rows, pack_signs, unpack_bits

PLAIN = PlainBitKernels()


@pytest.fixture
def emulated(gpu: EmulatedDevice) -> CudaBitKernels:
    return CudaBitKernels(gpu)


def scaled(
    kernels: BitKernels,
    values: Tensor,
    masks: Tensor | None = None,
    inside: Tensor | None = None,
    factor: Tensor | None = None,
) -> ScaledRows:
    out = ScaledRows.empty(values.shape[0], values.shape[1], values.device)
    kernels.scale_rows(values, masks, inside, factor, out)
    return out


def random_signs(rows: int, columns: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator)


def make_pattern(num_nodes: int, *, weighted: bool = False, hub: bool = False) -> SparseMatrix:
    generator = torch.Generator().manual_seed(num_nodes)
    edges = torch.randint(num_nodes, (2, 5 * num_nodes), generator=generator)
    if hub:  # a row, and a column, of more entries than one warp takes
        others = torch.arange(1, num_nodes)
        edges = torch.cat([edges, torch.stack([others, torch.zeros_like(others)])], dim=1)
        edges = torch.cat([edges, torch.stack([torch.ones_like(others), others])], dim=1)
    weight = torch.rand(edges.shape[1], generator=generator) if weighted else None
    return factored_adjacency(edges, weight, num_nodes)


@pytest.mark.parametrize("columns", [1, 63, 64, 65, 200])
def test_words_are_those_of_the_cpu(columns: int) -> None:
    x = random_signs(7, columns)
    assert torch.equal(pack_signs(x), pack_rows(x))
    assert torch.equal(unpack_bits(pack_signs(x), columns), x >= 0)


@pytest.mark.parametrize("keep", [1, 1638, 2048, 4095, 4096])
@pytest.mark.parametrize("num_bits", [1, 64, 100])
def test_masks(emulated: CudaBitKernels, keep: int, num_bits: int) -> None:
    like = pack_signs(random_signs(9, num_bits))
    for among in (None, like):
        for seed in (0, -5, 2**62 + 17):
            arguments = torch.tensor([seed]), keep, among, like, num_bits
            if seed >= 0:  # NumPy's seeds are not negative
                assert torch.equal(PLAIN.draw_masks(*arguments), emulated.draw_masks(*arguments))


@pytest.mark.parametrize("num_bits", [1, 31, 64, 65, 256, 300])
@pytest.mark.parametrize("columns", [1, 2, 7, 64, 65])
def test_products_of_signs(emulated: CudaBitKernels, num_bits: int, columns: int) -> None:
    words = pack_signs(random_signs(35, num_bits))
    packed = pack_signs(random_signs(columns, num_bits, 1))
    masks = words & pack_signs(random_signs(35, num_bits, 2))
    for kept in (None, masks):
        found = emulated.dots(words, kept, packed, num_bits)
        assert torch.equal(
            found[:, :columns], PLAIN.dots(words, kept, packed, num_bits)[:, :columns]
        )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("columns", [1, 2, 7, 40, 64, 70])
def test_sums_over_neighbours(emulated: CudaBitKernels, columns: int, weighted: bool) -> None:
    pattern = make_pattern(600, weighted=weighted, hub=columns == 40)
    factor = torch.rand(600, generator=torch.Generator().manual_seed(1))
    factor[3] = 0
    mine, plain = (k.round_rows(pattern, factor, 7) for k in (emulated, PLAIN))
    assert torch.equal(mine.two_to_e, plain.two_to_e)
    assert torch.equal(mine.row_scale, plain.row_scale)
    words, packed = pack_signs(random_signs(600, 90)), pack_signs(random_signs(columns, 90, 1))
    dots = PLAIN.dots(words, None, packed, 90)
    scale, shift, offset = random_signs(3, columns, 5).unbind()
    for added, per_weight in ((None, None), (shift, None), (shift, offset)):
        # Of 90 and of so many inputs that sums are floats.
        for num_bits in (90, 1 << 15):
            ends = ColumnEnds(scale, added, per_weight)
            found = emulated.sums(mine, dots, ends, num_bits)
            expected = PLAIN.sums(plain, dots, ends, num_bits)
            torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-3)
    gradient = scaled(PLAIN, random_signs(600, columns, 6))
    expected = PLAIN.back_sums(plain, gradient, scale, slice(0, 600)).float().sum(dim=1)
    assert torch.equal(expected[:, columns:], torch.zeros(600, -columns % 8))
    for sources in (slice(0, 600), slice(0, 101), slice(101, 600)):
        found = emulated.back_sums(mine, gradient, scale, sources).float().sum(dim=1)
        torch.testing.assert_close(found, expected[sources], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("columns", [1, 7, 64, 70, 300])
def test_signs_of_sums(emulated: CudaBitKernels, columns: int) -> None:
    pattern = make_pattern(600, hub=columns == 70)
    factor = torch.rand(600, generator=torch.Generator().manual_seed(1))
    rounding = PLAIN.round_rows(pattern, factor, 7)
    words, packed = pack_signs(random_signs(600, 90)), pack_signs(random_signs(columns, 90, 1))
    dots = PLAIN.dots(words, None, packed, 90)
    scale, shift = random_signs(2, columns, 5).unbind()
    for num_bits in (90, 1 << 15):
        given = (rounding, dots, ColumnEnds(0.01 * scale, shift, None), num_bits)
        found, expected = emulated.signs_of_sums(*given), PLAIN.signs_of_sums(*given)
        h = PLAIN.sums(*given)
        # Values that rounding may put on either side of 0 or 1 are left out.
        for bits, plain, size in zip(found, expected, (h.abs(), (h.abs() - 1).abs()), strict=False):
            differ = unpack_bits(bits ^ plain, columns)
            assert size[differ].amax().item() < 1e-5 if differ.any() else True
            assert torch.equal(bits & ~used_bits(columns), torch.zeros_like(bits))
        torch.testing.assert_close(found[2], expected[2], rtol=1e-5, atol=1e-6)


def used_bits(columns: int) -> Tensor:
    return pack_signs(torch.ones(1, columns))


@pytest.mark.parametrize("columns", [1, 32, 33, 64])
def test_signs_and_what_is_inside(emulated: CudaBitKernels, columns: int) -> None:
    h = random_signs(20, columns)
    h[0, 0], h[1, 0], h[2, 0] = 1.0, -1.0, 0.0
    h[3, 0] = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0))
    found = []
    for kernels in (emulated, PLAIN):
        words, inside = torch.full((2, 20, 3), 5)
        totals = torch.ones(20)
        kernels.binarize_columns(h, words[:, 1], inside[:, 1], totals)
        found.append((words, inside, totals))
    assert torch.equal(found[0][0], found[1][0])
    assert torch.equal(found[0][1], found[1][1])
    torch.testing.assert_close(found[0][2], found[1][2])
    assert (found[0][1][:4, 1] & 1).tolist() == [1, 1, 1, 0]


@pytest.mark.parametrize("columns", [1, 33, 64, 100])
def test_scaled_rows(emulated: CudaBitKernels, columns: int) -> None:
    values, factor = random_signs(11, columns), random_signs(11, 1, 3)[:, 0]
    values[4], values[5] = 0.0, 1e-35
    masks, inside = (pack_signs(random_signs(11, columns, seed)) for seed in (1, 2))
    for given in ((None, None, None), (None, inside, factor), (masks, inside, factor)):
        found, expected = (scaled(kernels, values, *given) for kernels in (emulated, PLAIN))
        assert torch.equal(found.values, expected.values)
        assert torch.equal(found.scales, expected.scales)
        floats = values if given[2] is None else values * factor.unsqueeze(1)
        for kept in given[:2]:
            if kept is not None:
                floats = torch.where(unpack_bits(kept, columns), floats, 0.0)
        error = (found.floats() - floats).abs()
        assert bool((error <= floats.abs().amax(dim=1, keepdim=True) / 65000 + 1e-32).all())
        torch.testing.assert_close(emulated.column_sums(found), PLAIN.column_sums(found))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_gradients_that_are_not_finite_stay_so(emulated: CudaBitKernels, bad: float) -> None:
    values = random_signs(3, 70)
    values[1, 40] = bad
    for kernels in (emulated, PLAIN):
        floats = scaled(kernels, values).floats()
        assert floats[1, 32:64].isnan().all()
        assert floats[1, :32].isfinite().all()
        assert floats[[0, 2]].isfinite().all()


@pytest.mark.parametrize(("columns", "num_bits"), [(1, 1), (7, 65), (40, 64), (65, 130)])
def test_products_of_gradients(emulated: CudaBitKernels, columns: int, num_bits: int) -> None:
    floats = torch.nn.functional.pad(random_signs(50, columns), (0, -columns % 8))
    upper = floats.to(torch.bfloat16)
    t = torch.stack([upper, (floats - upper.float()).to(torch.bfloat16)], dim=1)
    words, masks = (pack_signs(random_signs(50, num_bits, seed)) for seed in (1, 2))
    signs = torch.where(random_signs(columns, num_bits, 3) >= 0, 1.0, -1.0)
    for kept in (None, masks):
        for kernels in (emulated, PLAIN):
            f = torch.where(unpack_bits(words, num_bits), 1.0, -1.0)
            f = f if kept is None else torch.where(unpack_bits(kept, num_bits), f, 0.0)
            found = kernels.to_weight(t, words, kept, num_bits).sum(dim=0)
            expected = floats[:, :columns].t() @ f
            torch.testing.assert_close(found[:columns, :num_bits], expected, rtol=1e-4, atol=1e-4)
            found = kernels.to_input(t, kernels.back_matrix(signs))
            expected = floats[:, :columns] @ signs
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def test_sums_of_gradients_that_are_not_numbers(emulated: CudaBitKernels) -> None:
    """A GPU's arithmetic makes NaN of other bits than a CPU's."""
    pattern = make_pattern(60)
    rounding = PLAIN.round_rows(pattern, torch.rand(60) + 0.1, 7)
    gradient = scaled(PLAIN, random_signs(60, 40))
    gradient.scales.view(torch.int32)[:] = 0x7FFFFFFF
    scale = torch.ones(40)
    t = emulated.back_sums(rounding, gradient, scale, slice(0, 60)).float()
    has_neighbours = pattern.transposed.crow_indices().diff() > 0
    assert t[has_neighbours][:, :, :40].isnan().all()


def test_means_that_are_not_numbers(emulated: CudaBitKernels) -> None:
    rounding = PLAIN.round_rows(make_pattern(60), torch.rand(60) + 0.1, 7)
    words, packed = pack_signs(random_signs(60, 90)), pack_signs(random_signs(5, 90, 1))
    dots = PLAIN.dots(words, None, packed, 90)
    ends = ColumnEnds(torch.ones(5), torch.tensor([0.0, float("nan"), 0, 0, 0]), None)
    for kernels in (emulated, PLAIN):
        assert kernels.signs_of_sums(rounding, dots, ends, 90)[2].isnan().all()


def test_gradients_of_another_backward_pass_are_not_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pass that ends at a reader leaves nothing for the next."""
    monkeypatch.setattr(conv_module, "kernels_for", lambda device: PLAIN)
    torch.manual_seed(0)
    model = GCN(40, 20, 2, 4, binarize="both", input_bits="sign")
    x, pattern = random_signs(90, 40), make_pattern(90)
    model.fit_input(x)
    model.train()
    first, second = model.layers

    def losses() -> tuple[Tensor, Tensor]:
        rows = first.to_binary_rows(model.input_stage(x), pattern)
        assert rows is not None
        return second(rows, pattern).square().sum(), second(rows, pattern).sum()

    (expected,) = torch.autograd.grad(losses()[1], first.lin.weight)
    one, other = losses()
    torch.autograd.grad(one, second.lin.weight, retain_graph=True)
    (found,) = torch.autograd.grad(other, first.lin.weight)
    assert torch.equal(found, expected)


def test_two_readers_of_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their gradients add up, also where one of them reads floats."""
    monkeypatch.setattr(conv_module, "kernels_for", lambda device: PLAIN)
    torch.manual_seed(0)
    model = GCN(40, 20, 2, 4, binarize="both", input_bits="sign")
    x, pattern = random_signs(90, 40), make_pattern(90)
    model.fit_input(x)
    model.train()
    first, second = model.layers
    weight = first.lin.weight

    def gradient(*readers: str) -> Tensor:
        rows = first.to_binary_rows(model.input_stage(x), pattern)
        assert rows is not None
        slope = random_signs(90, 20, 4)
        losses = [
            second(rows, pattern).square().sum() if name == "bits" else (rows.signs * slope).sum()
            for name in readers
        ]
        torch.stack(losses).sum().backward()
        assert weight.grad is not None
        found, weight.grad = weight.grad, None
        return found

    outputs = [gradient("bits"), gradient("floats")]
    torch.testing.assert_close(gradient("bits", "bits"), 2 * outputs[0], rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(gradient("bits", "floats"), sum(outputs), rtol=1e-3, atol=5e-4)


Gradients = list[Tensor]


def step(model: GCN, x: Tensor, edges: Tensor, weight: Tensor | None) -> tuple[Tensor, Gradients]:
    torch.manual_seed(3)
    model.train().zero_grad()
    logits = model(x, edges, weight)
    (logits * torch.linspace(-1, 1, logits.numel()).view_as(logits)).sum().backward()
    buffers = [b.clone() for b in model.buffers()]
    grads = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    assert len(grads) == len(list(model.parameters()))
    return logits.detach(), [*grads, *buffers]


@pytest.fixture(params=["plain", "emulated"])
def kernels(request: pytest.FixtureRequest, gpu: EmulatedDevice) -> BitKernels:
    return PLAIN if request.param == "plain" else CudaBitKernels(gpu)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"norm": "batch"},
        {"dropout": 0.4},
        {"dropout": 0.3, "norm": "batch", "scale_gradient": False, "balance": True},
        {"dropout": 0.4, "drop": "present", "norm": "batch"},
        {"num_layers": 1, "dropout": 0.2},
        {"hidden_channels": 70, "num_layers": 2, "edge_bits": 4},
        {"input_bits": "learned:2", "norm": "batch"},
        {"input_bits": "learned:2", "dropout": 0.4},
    ],
    ids=str,
)
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_are_those_of_floats(
    monkeypatch: pytest.MonkeyPatch, kernels: BitKernels, options: dict[str, object], weighted: bool
) -> None:
    arrays = make_arrays(60, 33)
    x, edges = torch.from_numpy(arrays["x"]), torch.from_numpy(arrays["edge_index"])
    x = x + 0.3 * random_signs(60, 33)  # dense, so that signs deviate often
    edges = edges[:, : len(edges[0]) * 2 // 3]  # not symmetric
    weight = torch.rand(edges.shape[1], generator=torch.Generator().manual_seed(2)) + 0.1
    sizes = {"hidden_channels": 20, "num_layers": 3, "input_bits": "sign", **options}
    torch.manual_seed(0)
    model = GCN(33, out_channels=5, binarize="both", **sizes)  # type: ignore[arg-type]
    model.fit_input(x)
    for conv in model.layers:  # no sums that are 0 but for rounding
        if conv.bias is not None:
            torch.nn.init.normal_(conv.bias, std=0.1)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    given = (x, edges, weight if weighted else None)
    expected = step(model, *given)
    model.load_state_dict(state)
    monkeypatch.setattr(conv_module, "kernels_for", lambda device: kernels)
    calls = count_calls(monkeypatch)
    found = step(model, *given)
    assert len(calls) == len(model.convs)  # every layer was one of bits
    torch.testing.assert_close(found[0], expected[0], rtol=1e-4, atol=1e-5)
    for mine, floats in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(mine, floats, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("norm", ["none", "batch"])
def test_rows_are_multiplied_in_parts(
    monkeypatch: pytest.MonkeyPatch, kernels: BitKernels, norm: str
) -> None:
    monkeypatch.setattr(conv_module, "kernels_for", lambda device: kernels)
    torch.manual_seed(0)
    model = GCN(33, 40, 3, 5, binarize="both", input_bits="sign", dropout=0.3, norm=norm)  # type: ignore[arg-type]
    x, edges = random_signs(200, 33), torch.randint(200, (2, 900))
    model.fit_input(x)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    whole = step(model, x, edges, None)
    model.load_state_dict(state)
    monkeypatch.setattr(layer_module, "_BYTES_AT_ONCE", 1)
    parts: list[slice] = []
    back_sums = kernels.back_sums

    def counted(rounding: RowRounding, g: ScaledRows, scale: Tensor, sources: slice) -> Tensor:
        parts.append(sources)
        return back_sums(rounding, g, scale, sources)

    monkeypatch.setattr(kernels, "back_sums", counted)
    found = step(model, x, edges, None)
    assert len(parts) > 3 * len(model.convs)
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-6)


def count_calls(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    made: list[object] = []
    make = convolution_on_bits

    def counting(*args: object, **kwargs: object) -> object:
        made.append(make(*args, **kwargs))  # type: ignore[arg-type]
        return made[-1]

    monkeypatch.setattr(conv_module, "convolution_on_bits", counting)
    return made


def test_hidden_values_are_no_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_module, "kernels_for", lambda device: PLAIN)
    model = GCN(40, 128, 3, 4, binarize="both", input_bits="sign", dropout=0.5)
    x, pattern = random_signs(500, 40), make_pattern(500)
    model.fit_input(x)
    rows = model.input_stage(x)
    kept: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    def large() -> set[int]:
        gc.collect()
        tensors = [some for some in gc.get_objects() if issubclass(type(some), Tensor)]
        dense = [t for t in tensors if t.layout == torch.strided and not t.is_meta]
        return {id(t) for t in dense if t.untyped_storage().nbytes() >= 4 * 500 * 128}

    before = large()
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model.train()
        first = model.layers[0].to_binary_rows(rows, pattern)
        assert isinstance(first, BinaryRows)
        assert first.learns
        assert first.carrier is not None
        assert first.carrier.untyped_storage().nbytes() == 4
        logits = model(rows, pattern)
    assert max(kept.values()) <= 4 * 128 * 128  # the weights
    assert not large() - before  # nor does anything else hold floats of hidden values
    assert logits.requires_grad


def test_signs_of_bits_pass_gradients() -> None:
    h = (2 * random_signs(9, 70)).requires_grad_()
    rows = BinaryRows.of_learned(h)
    weight = random_signs(9, 70, 1)
    (rows.signs * weight).sum().backward()
    assert torch.equal(rows.signs, torch.where(h >= 0, 1.0, -1.0))
    expected = torch.where(h.abs() <= 1, weight / rows.beta, 0.0)
    assert h.grad is not None
    torch.testing.assert_close(h.grad, expected)


def test_packed_rows_are_taken() -> None:
    x = random_signs(12, 70)
    packed = BinaryRows.of_words(pack_signs(x), torch.rand(12, 1), 70)
    nodes = torch.tensor([3, 3, 11])
    assert torch.equal(packed.rows(nodes).signs, torch.where(x >= 0, 1.0, -1.0)[nodes])
    assert torch.equal(packed.rows(nodes).usual, packed.usual)


def test_rows_are_packed_unless_few_deviate() -> None:
    x = torch.where(random_signs(40, 70) >= 0, 1.0, -1.0)
    rows = BinaryRows(x, torch.rand(40, 1))
    packed = rows.packed()
    assert torch.equal(packed.signs, x)
    assert torch.equal(packed.usual, rows.usual)
    assert packed.deviations is None
    few = BinaryRows(torch.ones(40, 70), torch.rand(40, 1))
    assert few.packed() is few


def test_the_cpu_has_its_own_way() -> None:
    assert kernels_for(torch.device("cpu")) is None
    assert np.iinfo(np.int16).max == MOST_INPUTS
