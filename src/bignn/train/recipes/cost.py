"""``bignn cost``: the cost of a model on a graph, both by name, float beside binary."""

from __future__ import annotations

from collections.abc import Sized
from dataclasses import asdict, dataclass
from typing import Any

from bignn.bits import words_per_row
from bignn.cost import Cost, LayerCost, Sizes, estimate, on_machines
from bignn.graph import Graph
from bignn.graph.published_sizes import PUBLISHED_SIZES
from bignn.train.recipes import PAPER, RECIPES, TWINS, recipe

# GAT has eight output heads on PubMed; the paper prints the size with one.
_AS_COUNTED: dict[tuple[str, str], dict[str, Any]] = {("pubmed", "gat"): {"out_heads": 1}}


@dataclass(frozen=True)
class PublishedGraph:
    """A graph known by its published sizes, whether it is at hand or not."""

    num_nodes: int
    train_idx: Sized


def cost_of(model: str, dataset: str, **changes: Any) -> Cost:
    """Estimate the cost of a model on a published dataset, at the paper's sizes and widths.

    Where the paper does not train the model on the dataset, the widths are our recipe's.
    ``changes`` are those of :func:`bignn.train.recipes.recipe`.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    given = {**_AS_COUNTED.get((dataset, model), {}), **given}
    facts = PUBLISHED_SIZES[dataset]
    graph = PublishedGraph(facts.nodes, range(facts.train))
    paper = dataset if model in PAPER.get(dataset, {}) else None
    chosen = recipe(model, graph=graph, paper=paper, **given)
    return estimate(chosen, Sizes.published(dataset))


def report(
    model: str, graph: Graph | Sizes | str, changes: dict[str, Any]
) -> tuple[Cost, dict[str, Any]]:
    """Estimate the cost of a model, and build the document that ``bignn cost`` prints.

    Args:
        model: a name, as ``bignn train`` takes it.
        graph: a graph, the name of a published one, or the sizes of one that is planned.
        changes: changes to the model's recipe; None keeps a value.

    """
    if isinstance(graph, str):
        counted = cost_of(model, graph, **changes)
    else:
        known = graph if isinstance(graph, Graph) else None
        counted = estimate(recipe(model, graph=known, **changes), graph)
    twin = estimate(counted.architecture.twin, counted.sizes)
    is_binary = counted.architecture.binarize != "none"
    floats, binary = (twin, counted) if is_binary else (counted, twin)
    dataset = {str: graph, Graph: getattr(graph, "name", None)}.get(type(graph))
    document = {
        "dataset": dataset,
        "as_paper": isinstance(graph, str) and all(value is None for value in changes.values()),
        "sizes": asdict(counted.sizes),
        "model": model,
        "architecture": asdict(counted.architecture),
        **_figures(counted),
        "twin": {"model": _twin_name(model), **_figures(twin)},
        "ratios": asdict(binary.compared(floats)),
    }
    return counted, document


def machines_report(
    counted: Cost, machines: int, halo_rows: int | None, gigabits: float
) -> dict[str, Any]:
    """Estimate what machines hold and send each other, float beside binary."""
    twin = estimate(counted.architecture.twin, counted.sizes)
    is_binary = counted.architecture.binarize != "none"
    floats, binary = (twin, counted) if is_binary else (counted, twin)
    spread = [
        on_machines(some, machines, halo_rows=halo_rows, gigabits=gigabits)
        for some in (floats, binary)
    ]
    return {
        "machines": machines,
        "link_gbit": gigabits,
        "halo_rows": spread[1].halo_rows * machines,
        "is_counted": halo_rows is not None,
        "float": asdict(spread[0]),
        "binary": asdict(spread[1]),
    }


def _machine_lines(found: dict[str, Any]) -> list[str]:
    floats, binary = found["float"], found["binary"]
    source = "as counted" if found["is_counted"] else "assigned at random"

    def line(name: str, key: str, unit: float, digits: int = 2) -> str:
        left, right = floats[key] / unit, binary[key] / unit
        ratio = f"{left / right:>8.1f}x" if right else ""
        return f"  {name:<30}{left:>14,.{digits}f}{right:>14,.{digits}f}{ratio}"

    return [
        f"{found['machines']} machines, {found['halo_rows']:,.0f} rows of other machines read "
        f"before each layer ({source})",
        f"  {'each machine':<30}{'float':>14}{'binary':>14}{'ratio':>9}",
        line("holds, GB", "memory_bytes", 1e9),
        line("sends in a forward pass, GB", "sent_bytes", 1e9, 3),
        line(f"takes at {found['link_gbit']:g} Gbit/s, s", "seconds", 1, 3),
    ]


def _twin_name(model: str) -> str:
    if model in TWINS:
        return TWINS[model]
    return f"bi-{model}" if f"bi-{model}" in RECIPES else f"binary {model}"


def _figures(counted: Cost) -> dict[str, Any]:
    return {
        "model_bytes": _whole(counted.model_bytes),
        "data_bytes": _whole(counted.data_bytes),
        "cycle_ops": _whole(counted.cycle_ops),
        "input_bytes": _whole(counted.input_bytes),
        "input_ops": _whole(counted.input_ops),
        "layers": [_layer_figures(layer) for layer in counted.layers],
    }


def _layer_figures(counted: LayerCost) -> dict[str, Any]:
    layer = counted.layer
    return {
        "name": layer.name,
        "inputs": layer.inputs,
        "outputs": layer.outputs,
        "products": layer.products,
        "model_bytes": _whole(counted.model_bytes),
        "extraction_ops": _whole(counted.extraction_ops),
        "aggregation_ops": _whole(counted.aggregation_ops),
        "cycle_ops": _whole(counted.cycle_ops),
    }


def _whole(number: float) -> float:
    """Turn a float that is a whole number into an int."""
    return int(number) if float(number).is_integer() else number


def _other_count(dataset: str | None, edges: int) -> list[str]:
    """Note the published number of edges where the paper counts others."""
    facts = PUBLISHED_SIZES.get(dataset or "")
    if facts is None or facts.edges == edges:
        return []
    return [f"edges as the paper counts them; as published there are {facts.edges:,}"]


def describe(document: dict[str, Any]) -> str:
    """Format the document as a table, float beside binary."""
    is_binary = document["architecture"]["binarize"] != "none"
    named, twin = document, document["twin"]
    floats, binary = (twin, named) if is_binary else (named, twin)
    sizes = document["sizes"]
    on = document["dataset"] or "a planned graph"
    on += ", as in the paper" if document["as_paper"] else ""
    lines = [
        f"{named['model']} on {on}: {sizes['nodes']:,} nodes, {sizes['edges']:,} undirected edges, "
        f"{sizes['features']:,} features, {sizes['classes']:,} classes",
        *_other_count(document["dataset"], sizes["edges"]),
        "",
        f"{'':<8}{'':>14}{'model bytes':>24}{'':>9}{'cycle operations':>36}{'':>9}{'products':>10}",
        f"{'':<8}{'size':>14}{floats['model']:>12}{binary['model']:>12}{'ratio':>9}"
        f"{floats['model']:>18}{binary['model']:>18}{'ratio':>9}{'alone':>10}",
    ]
    rows = zip(floats["layers"], binary["layers"], document["ratios"]["layers"], strict=True)
    for left, right, ratios in rows:
        times = f" x{left['products']}" if left["products"] > 1 else ""
        size = f"{left['inputs']}x{left['outputs']}{times}"
        lines.append(_line(left["name"], size, left, right, ratios))
    lines += [
        _line("total", "", floats, binary, document["ratios"]),
        f"{'data':<8}{'':>14}{_mega(floats['data_bytes']):>12}{_mega(binary['data_bytes']):>12}"
        f"{document['ratios']['data']:>8.1f}x",
        *_input_lines(document, binary),
        "",
        "K = 1024 bytes, M = 1024 K. Biases are not counted; a cycle operation is a multiplication",
        "and an addition, or 64 binary ones. How it is counted: docs/design.md.",
    ]
    if "machines" in document:
        lines += ["", *_machine_lines(document["machines"])]
    if "measured" in document:
        lines += ["", *_measured_lines(document["measured"], binary["model"])]
    return "\n".join(lines)


def _input_lines(document: dict[str, Any], binary: dict[str, Any]) -> list[str]:
    """Describe the encoder of a binary model's input, if it has one."""
    nodes, features = document["sizes"]["nodes"], document["sizes"]["features"]
    inputs = binary["layers"][0]["inputs"]
    if inputs == features:
        return []
    per_node = binary["input_ops"] / nodes
    return [
        f"{'input':<8}{document['architecture']['input_bits']:>14}"
        f"{_kilo(binary['input_bytes']):>24}  {features} features become {inputs} bits: "
        f"{8 * words_per_row(inputs) + 4} bytes per node,",
        f"{'':<48}{per_node:,.0f} operations per node, once, when it is packed",
    ]


def _line(
    name: str, size: str, floats: dict[str, Any], binary: dict[str, Any], ratios: dict[str, Any]
) -> str:
    return (
        f"{name:<8}{size:>14}{_kilo(floats['model_bytes']):>12}"
        f"{_kilo(binary['model_bytes']):>12}{ratios['model']:>8.1f}x"
        f"{floats['cycle_ops']:>18,.0f}{binary['cycle_ops']:>18,.0f}{ratios['full']:>8.1f}x"
        f"{ratios['extraction']:>9.1f}x"
    )


def _kilo(number: float) -> str:
    return f"{number / 1024:.2f}K"


def _mega(number: float) -> str:
    return f"{number / 1024**2:.2f}M"


def _measured_lines(measured: dict[str, Any], model: str) -> list[str]:
    kind = "a random graph" if measured["synthetic"] else "the graph itself"
    sizes = f"{measured['nodes']:,} nodes, {measured['edges']:,} edges"
    lines = [
        f"measured: {model}, packed, with random weights, on {kind} ({sizes}), "
        f"{measured['threads']} thread{'s' if measured['threads'] > 1 else ''}",
        f"  weights and scales {_kilo(measured['model_bytes'])}, estimated "
        f"{_kilo(measured['estimated_model_bytes'])} (rows of bits are padded to 64)",
        f"  features           {_mega(measured['data_bytes'])}, estimated "
        f"{_mega(measured['estimated_data_bytes'])}",
        f"  all nodes in       {measured['ms']:.3f} ms",
    ]
    if measured["predicted_ms"] is not None:
        lines += [
            f"  predicted          {measured['predicted_ms']:.3f} ms, by what plan "
            f"{measured['plan']} does at unit costs measured now",
            f"                     {measured['cycle_ms']:.3f} ms, by cycle operations alone",
        ]
    return lines
