"""Step 1 of a conversion: the input stage, and the layer or the model that it goes to."""

from __future__ import annotations

import torch_geometric.nn as pyg
from torch import nn
from torch_geometric.nn.models.basic_gnn import BasicGNN

from bignn.config.input_bits import SIGN
from bignn.errors import InputError, input_error
from bignn.nn.convert.converted_input import ConvertedInput, MarkInput
from bignn.nn.convert.embedded_ids import first_after_embeddings
from bignn.nn.convert.feature_readers import Reading, feature_readers, reading_of
from bignn.nn.convert.inner_linear import InnerLinear
from bignn.nn.convert.replace_layers import LayerReplacement
from bignn.nn.convert.report import Report
from bignn.nn.convert.trace import traced_graph
from bignn.nn.convert.wrapped_layer import WrappedLayer, input_maps, standardize_input
from bignn.nn.gat_conv import GATConv
from bignn.nn.gcn_conv import GCNConv
from bignn.nn.gin_conv import GINConv
from bignn.nn.linear import Linear
from bignn.nn.sage_conv import SAGEConv

#: Layers that can be given another number of inputs, PyG's and those that replace them.
_WIDENED = (
    *(pyg.GCNConv, pyg.SAGEConv, pyg.GATConv, pyg.GINConv, pyg.Linear, nn.Linear),
    *(GCNConv, SAGEConv, GATConv, GINConv, Linear),
)


def put_input_stage(
    replacement: LayerReplacement, first: str | None, report: Report, input_bits: str
) -> None:
    """Put an input stage before the first layer, or before the model.

    Args:
        replacement: the layers of the model.
        first: the layer that the caller has named, if any; after embeddings the next one is.
        report: where to note what was done.
        input_bits: as of ``binarize_``.

    """
    model, layers = replacement.model, replacement.layers
    first = first or _embedding_reader(replacement)
    if replacement.is_heterogeneous:
        report.notes.append("The features of each type of nodes are centred where they are read.")
        return
    reads_x = first is None
    if first is None and isinstance(model, BasicGNN):
        # At the layer, not at the model: PyG's layer-wise ``inference`` calls layers.
        first = "convs.0"
    if first is None and isinstance(model, nn.Sequential) and replacement.first_is_binary:
        first = next(iter(layers))  # a child of the model would be one of its steps
    if first is None:
        found = list(layers) if replacement.first_is_binary else []
    else:
        found = [name for name in layers if name == first or name.startswith(f"{first}.")]
    if not found:
        report.notes.append("The first layer stays float, so the input is not standardised.")
        return
    reader: str | None = found[0]
    is_computed = False
    if first is None:
        reader, reading = _reader(model, layers, found[0])
        is_computed = reader is not None and reading is Reading.COMPUTED
        if is_computed:
            first = reader  # what the forward computes needs the features as they are
            reads_x = False
    if reader is None:
        report.notes.append(
            f"'{found[0]}' reads what other weights make of the features, or not the forward's "
            "first argument, so the input is not standardised."
        )
        return
    layer = layers[reader]
    if isinstance(layer, InnerLinear):
        report.notes.append(
            "The input is not standardised: the linear maps of the first convolution centre theirs."
        )
        model.register_forward_pre_hook(MarkInput(reader), with_kwargs=True)
        return
    weight = input_maps(layer)[0].weight
    stage = ConvertedInput(
        weight.shape[1],
        reader,
        _more_bits(model, layer, reader),
        is_at_layer=first is not None,
        reads_x=reads_x,
        input_bits=input_bits,
    ).to(weight.device)
    if stage.encoder is not None:
        _widen(layer, stage.num_bits, first or "convs.0")
        report.notes.append(
            f"{stage.num_features} features become {stage.num_bits} bits ({input_bits}), and "
            f"'{first}' has new weights for them: make the optimiser after this."
        )
        _note_other_readers(model, layers, reader, report)
    stage.train(model.training)
    if first is not None:
        layer.input_stage = stage
        where = f"'{first}'"
    else:
        model.input_stage = stage
        model.register_forward_pre_hook(standardize_input, with_kwargs=True)
        where = "the model"
    if is_computed:
        report.notes.append(
            f"The input of {where}, which the forward computes of the features, is standardised, "
            "with the statistics of the first training batch."
        )
        return
    model.fit_input = stage.fit  # type: ignore[assignment]
    report.notes.append(
        f"The input of {where} is standardised, with the statistics of the first training batch "
        "unless model.fit_input(x) is called before."
    )


def _note_other_readers(
    model: nn.Module, layers: dict[str, WrappedLayer], reader: str, report: Report
) -> None:
    """Note the layers that read the features too, by their signs alone."""
    try:
        readers = feature_readers(model, traced_graph(model))
    except InputError:
        return
    others = [name for name, layer in layers.items() if layer in readers and name != reader]
    if others:
        named = ", ".join(f"'{name}'" for name in others)
        report.notes.append(f"The features that {named} reads stay one bit each.")


def _reader(
    model: nn.Module, layers: dict[str, WrappedLayer], usual: str
) -> tuple[str | None, Reading]:
    """Return the first layer that reads the features, and how; None where other weights come first.

    It is the usual one, by the order in which the model has its layers, unless the model's forward
    shows another.
    """
    try:
        graph = traced_graph(model)
    except InputError:  # training says if it is another
        return usual, Reading.FEATURES
    direct = feature_readers(model, graph)
    if readers := [name for name, layer in layers.items() if layer in direct]:
        return readers[0], Reading.FEATURES
    called = {str(node.target) for node in graph.nodes if node.op == "call_module"}
    names = [name for name in layers if name in called]
    for name in names:
        if (reading := reading_of(model, graph, layers[name])) is not Reading.OTHERS:
            return name, reading
    return (None, Reading.OTHERS) if names else (usual, Reading.FEATURES)


def _more_bits(model: nn.Module, layer: nn.Module, name: str) -> str | None:
    """Return the options of ``binarize_`` that give a first layer more bits than one per feature.

    The bits themselves are left out, as ``{bits}``; None if the layer cannot have more.
    """
    if not isinstance(layer, _WIDENED):
        return None
    named = "" if isinstance(model, BasicGNN) else f", first='{name}'"
    return f"input_bits='{{bits}}'{named}"


def check_widens(layer: nn.Module, name: str) -> None:
    """Refuse a first layer that cannot be given another number of inputs."""
    if not isinstance(layer, _WIDENED):
        kind = type(layer).__name__
        fix = "put a Linear before it and name that one with 'first'"
        raise input_error("input_bits", f"'{SIGN}' where '{name}' is a {kind}", "more bits", fix)


def _widen(layer: WrappedLayer, num_bits: int, name: str) -> None:
    """Give a layer new weights for another number of inputs."""
    check_widens(layer, name)
    for linear in input_maps(layer):
        linear.in_channels = num_bits
        linear.weight = nn.Parameter(linear.weight.new_empty(linear.out_channels, num_bits))
        linear.reset_parameters()


def _embedding_reader(replacement: LayerReplacement) -> str | None:
    """Find the first layer of a model whose features are ids; None where they are numbers."""
    model = replacement.model
    if not any(isinstance(module, nn.Embedding) for module in model.modules()):
        return None
    try:
        return first_after_embeddings(model, traced_graph(model), replacement.layers)
    except InputError:  # training then says what to do
        return None
