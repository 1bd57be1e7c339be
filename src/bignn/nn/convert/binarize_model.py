"""``binarize_``: a PyG user's own model becomes binary, in place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from torch import nn
from torch_geometric.nn.models.basic_gnn import BasicGNN

from bignn.binarize import Binarization
from bignn.bits import words_per_row
from bignn.config import BinarizeMode, SteRule
from bignn.config.input_bits import AUTO, SIGN, parse_input_bits
from bignn.config.options import BELOW_ONE
from bignn.errors import InputError, input_error
from bignn.nn.convert.before_activation import record_origins_in
from bignn.nn.convert.center_layers import center_layers
from bignn.nn.convert.example import call_once
from bignn.nn.convert.feature_readers import (
    multiplies_features,
)
from bignn.nn.convert.inner_linear import InnerLinear
from bignn.nn.convert.input_stages import check_widens, put_input_stage
from bignn.nn.convert.remove_activations import remove_in_basic_gnn, remove_in_sequential
from bignn.nn.convert.replace_layers import LayerReplacement
from bignn.nn.convert.report import Report
from bignn.nn.convert.sign_watch import SignWatch, watch_outputs
from bignn.nn.convert.trace import largest_dropout, packing_obstacle, traced_graph
from bignn.nn.convert.weighed_layers import remember_weights_in
from bignn.nn.convert.wrapped_layer import (
    Wrapping,
    input_maps,
    set_dropout,
    wrap_layer,
)
from bignn.nn.edge_rounding import edge_bits_in_use
from bignn.nn.evaluation import has_forward
from bignn.nn.gat_conv import GATConv
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.gin_conv import GINConv
from bignn.nn.linear import Linear
from bignn.nn.sage_conv import SAGEConv

# Hidden layers of fewer bits get a note (docs/design.md, Converting PyG models).
_FEW_BITS = 16


def binarize_(
    model: nn.Module,
    *,
    binarize: BinarizeMode = "both",
    ste: SteRule = "input",
    dropout: float | None = None,
    skip: str | Sequence[str] = (),
    first: str | None = None,
    balance: bool = True,
    center: bool | Literal["auto"] = "auto",
    narrow: int = 16,
    edge_bits: int | None = None,
    input_bits: str = SIGN,
    example: Any = None,
) -> Report:
    r"""Make a model of PyG layers binary, in place, by the paper's general recipe (Sec. 4.4).

    1. The columns of the input are standardised (:class:`bignn.nn.InputStage`). The statistics are
       those of the first training batch, or of ``model.fit_input(x)``, and are part of the state.
    2. PyG's convolutions and Linear layers become bignn's, called as before and with the very same
       parameters (but GCN2Conv's, which are transposed): an optimiser of them goes on working, and
       trained weights are a starting point. Normalisation layers, biases and attention vectors
       stay float. In a convolution that bignn has no layer for (docs/models.md) every linear
       map of node values becomes binary, with batch normalisation of its input; the message passing
       stays as it is. Such a model trains, and does not pack.
    3. Activations before a binary layer are dropped, since the sign is one (and after a ReLU all
       signs would be +1), and dropout before it acts after the sign, on a fifth of the bits at
       most. The first layer drops as much as the model's own dropout, where its input is not
       dropped: a weight's sign does not decay. A linear map of the features drops the bits that
       are not usual in their column alone.

    In ``torch_geometric.nn.GCN``, ``GraphSAGE``, ``GAT`` and ``GIN``, and within an
    ``nn.Sequential``, step 3 changes the modules. What a model's own ``forward`` calls cannot be
    taken out, whether ``F.relu`` or a module; while it runs, binary layers read the values before
    it (:mod:`bignn.nn.convert.before_activation`), and all other modules the values after it.

    In training, now and then, a binary layer looks whether most columns of its input have one sign
    at all nodes, and warns once if so; likewise a model whose outputs are equal at nearly all
    nodes, in evaluation too. It also warns of few, dense features that are read by their signs.

    With ``binarize="none"`` or ``"weights"`` steps 1 and 3 are left out. With ``"none"`` the model
    computes what it did before.

    Args:
        model: a ``torch_geometric.nn.GCN``, ``GraphSAGE``, ``GAT`` or ``GIN``, or a module of your
            own, called with x or a ``Data`` first; or a heterogeneous model, by ``to_hetero`` or of
            ``HeteroConv``, called with ``x_dict`` and ``edge_index_dict``.
        binarize: ``"none"``, ``"features"``, ``"weights"`` or ``"both"``.
        ste: gradient rule for features, see :func:`bignn.binarize.binarize_features`.
        dropout: probability of dropping an entry of a binary layer's input; None for that of the
            model's own dropout.
        skip: names of modules that stay float, with all they contain; or one name.
        first: name of the layer whose input is standardised, where that is not the model's input;
            where x holds ids that an ``nn.Embedding`` reads, by default the first layer after it.
        balance: binarize ``W - median(W)``, per column, so that columns have as many +1 as -1
            (:class:`bignn.nn.Linear`). Otherwise the many bag-of-words features that a node lacks
            add up to the same large number at every node, and weights drawn by PyG learn nothing
            on Cora (32 % of validation nodes are right instead of 78 %, docs/design.md).
        center: batch normalisation (no affine part) before the sign, step 1 of the paper for hidden
            layers. ``"auto"`` puts it before layers whose input may be of one sign or very small:
            after a sum of activated values, an activation that cannot be looked past, an unknown
            convolution, a norm that only scales or one of the features themselves, an embedding, a
            pooling, or two binary layers without normalisation; in the networks of GIN; in a model
            whose forward cannot be traced, before every layer but the first. The report names them.
            True puts it before every layer but the first, and binary layers read the values after
            activations and dropout. False puts it nowhere, and ``"auto"`` not before a layer that
            the forward calls more than once.
        narrow: linear maps of fewer inputs (not convolutions) stay float (the networks of PyG's GIN
            end in one from classes to classes): a few signs tell too little, and bits of them save
            nothing.
        edge_bits: bits that neighbours' weights are rounded to in GCNConv, SAGEConv and GATConv, 2
            to 8 (7 is fast on every CPU), as packed models round them; None for float weights.
            Ignored unless ``binarize`` is ``"both"``. Packed models sum the same whole numbers, but
            for two cases, in which a scale β may differ in its last digit and round a weight
            otherwise: normalisation after a layer, which they fold in, and a module of your own
            without ``first``, whose first layer reads a plain tensor.
        input_bits: bits of the features that the first layer reads, ``"sign"``, ``"learned:K"``,
            ``"rotate:K"`` or ``"threshold:K"``, as in :class:`bignn.nn.GNN`; few, dense features
            gain by ``"learned:16"``, and training says so where they are read by their signs alone.
            With more bits than one per feature the first layer is wider and has new weights. In a
            module of your own ``first`` names that layer.
        example: of a model with sizes of -1, a ``Data``, a ``HeteroData`` or a tuple of arguments
            that the model is called with once, which sets them.

    """
    binarization = Binarization.of(binarize, ste)
    if not isinstance(model, nn.Module):
        raise input_error("model", "a torch.nn.Module", type(model).__name__)
    is_container = isinstance(model, nn.ModuleList | nn.ModuleDict)
    looks_past = binarization.features and center is not True
    if looks_past and not is_container and not has_forward(model):
        got = f"a {type(model).__name__} without"
        fix = "define forward(self, x, edge_index), and train and evaluate by calling the model"
        raise input_error("model", "a module with a forward", got, fix)
    if dropout is not None:
        BELOW_ONE.check("dropout", dropout)
    if center not in (True, False, "auto"):
        raise input_error("center", "True, False or 'auto'", repr(center))
    if not isinstance(narrow, int) or narrow < 0:
        raise input_error("narrow", "a whole number, 0 or more", repr(narrow))
    edge_bits = edge_bits_in_use(edge_bits, binarize)
    if input_bits == AUTO:
        fix = "'auto' is for models of bignn.nn; for few, dense features try 'learned:16'"
        raise input_error(
            "input_bits", "'sign', 'learned:K', 'rotate:K' or 'threshold:K'", "'auto'", fix
        )
    encodes = parse_input_bits(input_bits, has_auto=False) is not None and binarization.features
    if encodes and first is None and not isinstance(model, BasicGNN):
        fix = "name the layer that reads the features: first='conv1'"
        raise input_error("input_bits", f"'{SIGN}' without 'first'", repr(input_bits), fix)
    options = {"binarize": binarize, "ste": ste, "balance": balance and binarization.weights}
    narrow = narrow if binarization.features else 0
    if example is not None:
        call_once(model, example)
    skipped = (skip,) if isinstance(skip, str) else tuple(skip)
    replacement = LayerReplacement(model, binarization, options, skipped, narrow)
    replacement.check(first)
    if encodes and first is not None:
        check_widens(model.get_submodule(first), first)
    report = Report(bytes_before=sum(4 * p.numel() for p in model.parameters()))
    replacement.replace()
    reads_before = False
    if binarization.features:
        is_whole = _remove_activations(model, replacement)
        reads_before = center is not True and not is_whole
        put_input_stage(replacement, first, report, input_bits)
        if not is_whole:
            masks = _masks_in_training(model)
            record_origins_in(model, is_needed=reads_before, masks_in_training=masks)
        if reads_before:
            report.notes.append(
                "Binary layers read the values before the activations and dropout that the "
                "model's forward applies: after a ReLU all signs would be +1."
            )
    first_watch: SignWatch | None = None
    for name, layer in replacement.layers.items():
        if isinstance(layer, GCNConv | SAGEConv | GATConv):
            layer.edge_bits = edge_bits
        dropped = input_maps(layer)[0].dropout
        signs = SignWatch(first_watch)
        first_watch = first_watch or signs
        wrapping = Wrapping(name, reads_before, dropout is not None, dropped, signs=signs)
        if isinstance(layer, InnerLinear):
            layer.wrapping = wrapping  # type: ignore[assignment]
        else:
            wrap_layer(layer, wrapping)
        if dropout is not None:
            set_dropout(layer, dropout)
    if reads_before and dropout is None:
        _drop_first(replacement, report)
    if binarization.features:
        center_layers(replacement, center, report)
        _note_few_bits(replacement, report)
        watch_outputs(model)
    remember_weights_in(model)
    report.entries = list(replacement.entries())
    report.bytes_after = _bytes_after(model)
    report.obstacle = packing_obstacle(model)
    return report


def _remove_activations(model: nn.Module, replacement: LayerReplacement) -> bool:
    """Do step 3 wherever modules can be changed; return whether that is the whole model."""
    inner = [m.rest for m in model.modules() if isinstance(m, GINConv)]
    for sequence in [m for m in model.modules() if type(m) is nn.Sequential]:
        remove_in_sequential(sequence, is_hidden=sequence in inner)
    families = [m for m in model.modules() if isinstance(m, BasicGNN)]
    simple = [family for family in families if replacement.is_complete_in(family)]
    for family in simple:
        remove_in_basic_gnn(family)
    return bool(simple) and simple[0] is model


def _masks_in_training(model: nn.Module) -> bool:
    """Whether features are multiplied in training alone, if at all, as far as is known."""
    try:
        return not multiplies_features(traced_graph(model))
    except InputError:
        return False


def _note_few_bits(replacement: LayerReplacement, report: Report) -> None:
    """Note the hidden layers that read few numbers, of which signs tell little."""
    for name, layer in list(replacement.layers.items())[int(replacement.first_is_binary) :]:
        num_bits = input_maps(layer)[0].in_channels
        if num_bits < _FEW_BITS and not isinstance(layer, InnerLinear):
            report.notes.append(
                f"'{name}' reads {num_bits} bits of each node, which tell little: make what it "
                f"reads wider, or keep it float with skip=['{name}']."
            )


def _drop_first(replacement: LayerReplacement, report: Report) -> None:
    """Let what reads the features drop as much as is dropped later, if they are not dropped."""
    model, layers = replacement.model, list(replacement.layers.values())
    if not layers or not replacement.first_is_binary:
        return
    share = max(largest_dropout(model), *(input_maps(layer)[0].dropout for layer in layers))
    for layer in layers:
        layer.wrapping.features_dropout = share  # type: ignore[union-attr]
    first: Wrapping = layers[0].wrapping  # type: ignore[assignment]
    if not share or first.dropout:
        return
    if not isinstance(layers[0], InnerLinear):  # it may read sums or messages
        first.default_dropout = share
    kind = " (only bits that are unusual in their column)" if isinstance(layers[0], Linear) else ""
    report.notes.append(
        f"'{first.name}' drops {share:g} of its input{kind}, as later layers' dropout does, unless "
        "the forward itself drops some."
    )


def _bytes_after(model: nn.Module) -> int:
    total, as_bits = 0, set()
    for module in model.modules():
        if isinstance(module, Linear) and module.binarization.weights:
            rows, columns = module.weight.shape
            total += rows * (8 * words_per_row(columns) + 4)
            as_bits |= {id(parameter) for parameter in module.stored_parameters()}
    return total + sum(4 * p.numel() for p in model.parameters() if id(p) not in as_bits)
