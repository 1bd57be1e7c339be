"""Centring the input of converted layers: where batch normalisation is put before a sign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

from torch import nn

from bignn.errors import InputError
from bignn.nn.convert.center import Center, follow_weights_in
from bignn.nn.convert.inner_linear import InnerLinear
from bignn.nn.convert.replace_layers import LayerReplacement
from bignn.nn.convert.report import Report
from bignn.nn.convert.trace import traced_graph
from bignn.nn.convert.uncentred_inputs import uncentred_layers
from bignn.nn.convert.wrapped_layer import input_maps


def center_layers(
    replacement: LayerReplacement, center: bool | Literal["auto"], report: Report
) -> None:
    """Put batch normalisation before the sign of layers, but for those that an input stage feeds.

    With ``"auto"``, where the model's forward does not show that their input is centred. A layer
    that the forward calls more than once is then left as it is: in evaluation the statistics of its
    last value would be used for all.
    """
    model, layers = replacement.model, replacement.layers
    chosen: Iterable[nn.Module] = []
    why = ""
    if center == "auto":
        try:
            chosen = uncentred_layers(model, traced_graph(model))
            why = ": without it all signs of a column could be equal, or values too small"
        except InputError:
            chosen = list(layers.values())[int(hasattr(model, "input_stage")) :]
            why = ": the model's forward cannot be followed to see where it is needed"
    elif center:
        chosen = layers.values()
    wanted = [
        name
        for name, layer in layers.items()
        if layer in chosen
        and not isinstance(layer, InnerLinear)  # it has its own
        and not hasattr(layer, "input_stage")
    ]
    repeated = [name for name in wanted if name in _called_repeatedly(model)]
    named = [name for name in wanted if center is True or name not in repeated]
    for name in named:
        layer = layers[name]
        weight = input_maps(layer)[0].weight
        layer.center = Center(weight.shape[1]).to(weight.device)
        layer.center.train(layer.training)
    if named:
        report.notes.append(
            f"The input of {_listed(named)} is centred by batch normalisation{why}."
        )
    if repeated:
        so = "so evaluation may differ" if center is True else "so its input is not centred"
        report.notes.append(
            f"The forward calls {_listed(repeated)} more than once, {so}: it has the running "
            "statistics of the last call alone."
        )
    if norms := follow_weights_in(model):
        report.notes.append(
            f"The running statistics of {_listed(norms)} follow the weights closely, whatever the "
            "momentum: signs turn where they trail."
        )


def _called_repeatedly(model: nn.Module) -> set[str]:
    """Return the names of the modules that a model's forward calls more than once."""
    try:
        nodes = traced_graph(model).nodes
    except InputError:
        return set()
    calls = Counter(str(node.target) for node in nodes if node.op == "call_module")
    return {name for name, count in calls.items() if count > 1}


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
