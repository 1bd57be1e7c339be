"""The header of a packed model's file: written, and read with all its checks (docs/format.md)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, get_args

from bignn.errors import FileError
from bignn.kernels.edge_kinds import WeightUse
from bignn.kernels.layer import HIDDEN_EDGE_BITS
from bignn.runtime import tensors
from bignn.runtime.hetero_graph import checked_relations
from bignn.runtime.operations import FIRST_VERSION_EDGE_BITS
from bignn.runtime.predicted_values import Output

if TYPE_CHECKING:
    from bignn.runtime.packed_model import PackedModel

VERSION = 2
_HEADER = frozenset(
    [
        *["format", "version", "num_features", "operations", "about", "relations", "edge_weight"],
        *["class_names", "output"],
    ]
)


def header_of(model: PackedModel) -> dict[str, Any]:
    """Write the header of a model's file; what is usual is left out."""
    relations = [list(relation) for relation in model.network.relations]
    optional: dict[str, Any] = {"relations": relations} if relations else {}
    if model.edge_weight != "used":
        optional["edge_weight"] = model.edge_weight
    if model.class_names is not None:
        optional["class_names"] = list(model.class_names)
    if model.output != "classes":
        optional["output"] = model.output
    return optional | {
        "format": tensors.MODEL_FORMAT,
        "version": VERSION,
        "num_features": model.network.num_features,
        "operations": model.operations,
        "about": model.about,
    }


def read_header(header: Mapping[str, Any]) -> dict[str, Any]:
    """Read the arguments that a model is made with; its class names are checked against them."""
    version = header.get("version")
    if type(version) is not int or version not in (1, VERSION):
        raise FileError(f"version {version!r} is not known, expected {VERSION}")
    about = header.get("about", {})
    if not isinstance(about, dict):
        raise FileError("'about' is not an object")
    if unknown := sorted(set(header) - _HEADER):
        raise FileError(f"it has an unknown part '{unknown[0][:40]}'; a newer bignn may read it")
    operations: Any = header.get("operations")
    if version == 1 and isinstance(operations, list):
        operations = [_from_first_version(step) for step in operations]
    use: Any = header.get("edge_weight", "used")
    if use not in get_args(WeightUse):
        raise FileError(f"'edge_weight' must be one of {list(get_args(WeightUse))}")
    output: Any = header.get("output", "classes")
    if output not in get_args(Output):
        raise FileError(f"'output' must be one of {list(get_args(Output))}")
    relations = checked_relations(header["relations"]) if "relations" in header else ()
    return {
        "operations": operations,
        "num_features": header.get("num_features"),
        "about": about,
        "relations": relations,
        "edge_weight": use,
        "output": output,
    }


def _from_first_version(step: Any) -> Any:
    """Rename the parameter ``norm`` of version 1's ``aggregate`` to ``aggr``."""
    if (
        isinstance(step, dict)
        and step.get("edge_bits", HIDDEN_EDGE_BITS) not in FIRST_VERSION_EDGE_BITS
    ):
        expected = list(FIRST_VERSION_EDGE_BITS)
        raise FileError(f"'edge_bits' of a file of version 1 must be one of {expected}")
    if not isinstance(step, dict) or step.get("op") != "aggregate" or "norm" not in step:
        return step
    return {("aggr" if key == "norm" else key): value for key, value in step.items()}
