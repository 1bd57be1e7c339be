"""Centring the input of converted layers: where batch normalisation is put before a sign."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from torch import nn

from bignn.errors import InputError
from bignn.nn.convert.center import Center, ForwardCount, follow_weights_in
from bignn.nn.convert.feature_readers import feature_readers
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
    calls = _calls_of_modules(model)
    if center == "auto":
        often = {layer for name, layer in layers.items() if calls[name] > 1}
        try:
            chosen = uncentred_layers(model, traced_graph(model), often)
            why = ": without it all signs of a column could be equal, or values too small"
        except InputError:
            chosen = _after_the_features(replacement)
            why = ": the model's forward cannot be followed to see where it is needed"
    elif center:
        chosen = _after_the_features(replacement)
    wanted = [
        name
        for name, layer in layers.items()
        if layer in chosen
        and not isinstance(layer, InnerLinear)  # it has its own
        and not hasattr(layer, "input_stage")
    ]
    repeated = [name for name in wanted if calls[name] > 1]
    named = [name for name in wanted if center is True or name not in repeated]
    forwards = ForwardCount()
    forwards.watch(model)
    for name in named:
        layer = layers[name]
        weight = input_maps(layer)[0].weight
        made = Center(weight.shape[1], name, forwards, is_optional=center == "auto")
        layer.center = made.to(weight.device)
        layer.center.train(layer.training)
    if named:
        report.notes.append(
            f"The input of {_listed(named)} is centred by batch normalisation{why}."
        )
    if repeated:
        so = "is centred by averages over all calls" if center is True else "is not centred"
        report.notes.append(
            f"The forward calls {_listed(repeated)} more than once, so its input {so}: give each "
            "call a layer of its own."
        )
    if norms := follow_weights_in(model, forwards):
        report.notes.append(
            f"The running statistics of {_listed(norms)} follow the weights closely, whatever the "
            "momentum: signs turn where they trail."
        )
        if shared := [name for name in norms if calls[name] > 1]:
            report.notes.append(
                f"The forward calls {_listed(shared)} more than once, so in evaluation all calls "
                "are normalised by one average, which turns signs: give each call a norm of its "
                "own."
            )


def _after_the_features(replacement: LayerReplacement) -> Sequence[nn.Module]:
    """List the layers that do not read standardised features."""
    model, layers = replacement.model, list(replacement.layers.values())
    if not hasattr(model, "input_stage"):
        return layers
    try:
        readers = feature_readers(model, traced_graph(model))
    except InputError:
        return layers[1:]
    return [layer for layer in layers if layer not in readers]


def _calls_of_modules(model: nn.Module) -> Counter[str]:
    """Count how often a model's forward calls each module, by name; nothing if untraceable."""
    try:
        nodes = traced_graph(model).nodes
    except InputError:
        return Counter()
    return Counter(str(node.target) for node in nodes if node.op == "call_module")


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
