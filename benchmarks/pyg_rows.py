"""The rows of PyG's table: a node classifier of each class, or why there is none.

Classes are those of the installed PyG, and their arguments are found by name in signatures, so a
new version's classes have rows by themselves; the tables below hold what names do not tell.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import Any, Literal

import torch
import torch_geometric.nn as pyg
from pyg_networks import Batched, ConvNet, DNANet, LinearFirst, NormNet, StackNet, degree_counts
from torch import nn
from torch_geometric.data import Data

Kind = Literal["convolution", "model", "norm"]
WIDTH = 64


@dataclass(frozen=True)
class Row:
    """A row of the table.

    Attributes:
        name: name of the row: the class, with the option where it has several rows.
        kind: the part of PyG that the class is in.
        build: makes a node classifier for a graph; None if there is none.
        reason: why there is none.
        remark: what is special about it.
        conversion: options of ``bignn.binarize_``.

    """

    name: str
    kind: Kind
    build: Callable[[Data], nn.Module] | None = None
    reason: str = ""
    remark: str = ""
    conversion: Mapping[str, Any] = field(default_factory=dict)

    @property
    def class_name(self) -> str:
        """Name of the class."""
        return self.name.split()[0]


@cache
def rows() -> dict[str, Row]:
    """Return the rows of the installed PyG, by name; in its order."""
    found = [
        *(row for kind in _classes(pyg.conv) for row in _convolution_rows(kind)),
        *(row for kind in _classes(pyg.models) for row in _model_rows(kind)),
        *(row for kind in _classes(pyg.norm) for row in _norm_rows(kind)),
    ]
    return {row.name: row for row in found}


def _classes(module: Any) -> list[type[nn.Module]]:
    found: list[Any] = [getattr(module, name) for name in module.__all__]
    return [kind for kind in found if isinstance(kind, type)]


# Arguments that signatures require, by name.
_ARGUMENTS: dict[str, Any] = {
    "K": 2,
    "aggregators": ["mean", "min", "max", "std"],
    "alpha": 0.1,
    "depth": 2,
    "dim": 2,
    "edge_attr_emb_dim": 8,
    "edge_dim": 2,
    "edge_type_emb_dim": 8,
    "filter_size": 2,
    "groups": 4,
    "hidden_channels": WIDTH,
    "kernel_size": 3,
    "num_edge_types": 2,
    "num_layers": 2,
    "num_node_types": 2,
    "num_relations": 2,
    "num_types": 2,
    "scalers": ["identity", "amplification", "attenuation"],
}
# Options that are not PyG's defaults.
_OPTIONS: dict[str, dict[str, Any]] = {
    "EGConv": {"num_heads": 1},  # the classes need not be a multiple of 8
    "GINEConv": {"edge_dim": 2},
    "MLP": {"hidden_channels": WIDTH, "num_layers": 2},
    "PNA": {name: _ARGUMENTS[name] for name in ("aggregators", "scalers")},
}
# Columns that a linear map makes of the features first, where each edge has a matrix of its own or
# a row as wide as two nodes.
_FIRST: dict[str, tuple[int, str]] = {
    **dict.fromkeys(("EdgeConv", "EdgeCNN", "PNAConv", "PNA"), (32, "a vector per edge")),
    **dict.fromkeys(("FastRGCNConv", "NNConv", "RGATConv"), (16, "a matrix per edge")),
}
# Options of ``bignn.binarize_``.
_CONVERSIONS: dict[str, dict[str, Any]] = {
    "GroupAddRev": {"center": True},  # it runs its layers again in the backward pass
    # Its attention has values of three dimensions.
    "SGFormer": {"skip": ["model.trans_conv"], "first": "model.graph_conv.fcs.0"},
}
_REASONS: dict[str, str] = {
    "MessagePassing": "the base class",
    "MeshCNNConv": "reads the edges of meshes",
    "WLConv": "colours nodes; has no weights",
    # Models.
    **dict.fromkeys(("ARGA", "ARGVA", "GAE", "VGAE"), "an autoencoder of links around any encoder"),
    **dict.fromkeys(("ARLinkPredictor", "InnerProductDecoder", "LPFormer"), "predicts links"),
    **dict.fromkeys(
        ("AttentiveFP", "NeuralFingerprint"), "a row per graph, of molecules; no node-level output"
    ),
    **dict.fromkeys(
        ("DimeNet", "DimeNetPlusPlus", "GNNFF", "SchNet", "ViSNet"), "needs positions of atoms"
    ),
    **dict.fromkeys(("GPSE", "GPSENodeEncoder"), "encodes positions, for other models"),
    **dict.fromkeys(
        ("CorrectAndSmooth", "LabelPropagation"), "spreads labels; has no weights to train"
    ),
    **dict.fromkeys(("LightGCN", "MetaPath2Vec", "Node2Vec"), "embeds nodes without features"),
    **dict.fromkeys(("RENet", "TGNMemory"), "for events in time"),
    "DeepGraphInfomax": "trains any encoder without labels",
    "HeteroJumpingKnowledge": "for graphs of several node types",
    "MaskLabel": "reads labels, not features",
    "MetaLayer": "a frame for networks of your own",
    "RECT_L": "predicts features, not classes",
    "SignedGCN": "needs positive and negative edges",
}
# What convolutions are given besides nodes and edges, by the arguments that tell its sizes.
_EXTRAS: dict[str, set[str]] = {
    "edge_attr": {"dim", "edge_dim"},
    "edge_type": {"num_relations", "num_edge_types"},
    "node_type": {"num_node_types"},
}
_SEVERAL_TYPES = "for graphs of several node types"
# Names in a forward that one graph with features cannot give.
_CANNOT_GIVE = {
    "args_dict": _SEVERAL_TYPES,
    "csr": "runs on GPUs only, by dgNN",
    "x_dict": _SEVERAL_TYPES,
    "pos": "needs positions: point clouds",
    "pos_edge_index": "needs positive and negative edges",
}


def missing_package(row: Row) -> str:
    """Name the package without which a row's class cannot be made or called; empty if it can."""
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    try:
        if row.build is not None:
            row.build(Data(torch.ones(4, 3), edges, y=edges[0] % 2))
    except ImportError as error:
        return str(error)
    return ""


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    return dict(list(inspect.signature(function).parameters.items())[1:])  # without self


def _network(class_name: str, inputs: int, outputs: int) -> nn.Module:
    """Make the network inside a convolution."""
    if class_name == "NNConv":  # a matrix of two edge features
        return nn.Linear(2, inputs * outputs)
    inputs *= 2 if class_name == "EdgeConv" else 1
    return nn.Sequential(nn.Linear(inputs, WIDTH), nn.ReLU(), nn.Linear(WIDTH, outputs))


def _arguments(kind: type[nn.Module], inputs: int, outputs: int, data: Data) -> dict[str, Any]:
    """Choose the arguments of a class: sizes, what it requires, and options from the tables."""
    name = kind.__name__
    makers: dict[str, Callable[[], Any]] = {
        "channels": lambda: inputs,
        "conv": lambda: pyg.GCNConv(inputs, outputs),
        "deg": lambda: degree_counts(data),
        "nn": lambda: _network(name, inputs, outputs),
        "num_nodes": lambda: data.num_nodes,
    }
    chosen: dict[str, Any] = {}
    for argument, parameter in _parameters(kind.__init__).items():
        is_required = parameter.default is parameter.empty
        if argument in ("in_channels", "out_channels"):
            chosen[argument] = inputs if argument == "in_channels" else outputs
        elif is_required and argument in makers:
            chosen[argument] = makers[argument]()
        elif is_required and argument in _ARGUMENTS:
            chosen[argument] = _ARGUMENTS[argument]
    return {**chosen, **_OPTIONS.get(name, {})}


def _lacking(kind: type[nn.Module]) -> str:
    """Say which required argument has no known value; empty for none."""
    known = {*_ARGUMENTS, "in_channels", "out_channels", "channels", "conv", "deg", "nn"}
    for name, parameter in _parameters(kind.__init__).items():
        is_needed = parameter.default is parameter.empty
        is_named = parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL)
        if is_needed and is_named and name not in known | {"num_nodes"}:
            return f"needs '{name}'"
    return ""


def _reason(kind: type[nn.Module]) -> str:
    """Say why a class makes no node classifier; empty if it does, as far as names tell."""
    if kind.__name__ in _REASONS:
        return _REASONS[kind.__name__]
    reads = _parameters(kind.forward)
    for name, why in _CANNOT_GIVE.items():
        if name in reads:
            return why
    return _lacking(kind)


def _convolution_rows(kind: type[nn.Module]) -> Iterator[Row]:
    name = kind.__name__
    reason = _reason(kind)
    if reason.startswith("needs '") and "edge_index" not in _parameters(kind.forward):
        reason = "finds its own edges among the nearest nodes: point clouds"
    if reason:
        yield Row(name, "convolution", None, reason)
        return
    width, why = _FIRST.get(name, (0, ""))
    remark = f"a Linear to {width} columns first: {why}" if width else ""
    yield Row(name, "convolution", partial(_conv_net, kind), remark=remark)


def _conv_net(kind: type[nn.Module], data: Data) -> nn.Module:
    """Make a network of two convolutions of a kind."""
    sizes = {"in_channels", "out_channels", "channels"} & set(_parameters(kind.__init__))
    takes_both = sizes == {"in_channels", "out_channels"} or bool(
        {"nn", "conv"} & set(_required(kind))
    )

    def make(inputs: int, outputs: int) -> nn.Module:
        return kind(**_arguments(kind, inputs, outputs, data))

    def make_same(inputs: int, outputs: int) -> nn.Module:
        return make(inputs, inputs)

    given = {*_required(kind), *_OPTIONS.get(kind.__name__, {})}
    extras = [name for name, sizes_of in _EXTRAS.items() if sizes_of & given]
    extras += ["edge_attr"] if kind is pyg.NNConv else []
    first = _FIRST.get(kind.__name__, (0, ""))[0]
    if kind is pyg.DNAConv:
        return DNANet(make, data, WIDTH)
    if takes_both and "channels" not in sizes:
        return ConvNet(make, data, WIDTH, first=first, extras=extras)
    if sizes:
        return ConvNet(make_same, data, WIDTH, first=WIDTH, extras=extras)
    return ConvNet(make, data, WIDTH, linear_each=True)


def _required(kind: type[nn.Module]) -> list[str]:
    parameters = _parameters(kind.__init__)
    return [name for name, given in parameters.items() if given.default is given.empty]


def _norm_rows(kind: type[nn.Module]) -> Iterator[Row]:
    reason = _reason(kind)
    yield Row(kind.__name__, "norm", None if reason else partial(_norm_net, kind), reason)


def _norm_net(kind: type[nn.Module], data: Data) -> nn.Module:
    return NormNet(kind(**_arguments(kind, WIDTH, WIDTH, data)), data, WIDTH)


def _model_rows(kind: type[nn.Module]) -> Iterator[Row]:
    name = kind.__name__
    if name == "JumpingKnowledge":
        for mode in ("cat", "max", "lstm"):
            build = partial(_jumping, mode)
            yield Row(f"{name} {mode}", "model", build, remark="of two GCNConv")
    elif name in _STACKED:
        yield _with_conversion(Row(name, "model", partial(_stacked, name), remark="of GCNConv"))
    elif reason := _reason(kind):
        yield Row(name, "model", None, reason)
    else:
        width, why = _FIRST.get(name, (0, ""))
        remark = f"a Linear to {width} columns first: {why}" if width else ""
        yield _with_conversion(Row(name, "model", partial(_model, kind, width), remark=remark))


def _with_conversion(row: Row) -> Row:
    """Give a row its options of ``bignn.binarize_``, if it has any, and remark on them."""
    options = _CONVERSIONS.get(row.name, {})
    written = ", ".join(f"{name}={value!r}" for name, value in options.items())
    remarks = filter(None, [row.remark, f"by binarize_({written})" if written else ""])
    return replace(row, remark=", ".join(remarks), conversion=options)


def _model(kind: type[nn.Module], width: int, data: Data) -> nn.Module:
    inputs, outputs = data.num_node_features, int(data.y.max()) + 1
    arguments = _arguments(kind, width or inputs, outputs, data)
    if "dropout" in _parameters(kind.__init__):
        arguments["dropout"] = 0.5
    if kind is pyg.PNA:  # its convolution's argument
        arguments["deg"] = degree_counts(data)
    model = kind(**arguments)
    reads = _parameters(kind.forward)
    if (
        "edge_index" not in reads
        or reads.get("batch", _OPTIONAL).default is inspect.Parameter.empty
    ):
        model = Batched(model, needs_edges="edge_index" in reads)
    return LinearFirst(inputs, width, model) if width else model


_OPTIONAL = inspect.Parameter("batch", inspect.Parameter.KEYWORD_ONLY, default=None)


def _jumping(mode: str, data: Data) -> nn.Module:
    outputs = int(data.y.max()) + 1
    made: nn.Module = pyg.GCN(data.num_node_features, WIDTH, 2, outputs, dropout=0.5, jk=mode)
    return made


# Layers of equal width between two linear maps.
_STACKED: dict[str, Callable[[], nn.Module]] = {
    "DeepGCNLayer": lambda: pyg.DeepGCNLayer(
        pyg.GCNConv(WIDTH, WIDTH), pyg.BatchNorm(WIDTH), nn.ReLU(), dropout=0.5
    ),
    "GroupAddRev": lambda: pyg.GroupAddRev(pyg.GCNConv(WIDTH // 2, WIDTH // 2), num_groups=2),
}


def _stacked(name: str, data: Data) -> nn.Module:
    return StackNet(_STACKED[name], data, WIDTH)
