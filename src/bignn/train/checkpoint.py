"""Checkpoints: one safetensors file, written whole or not at all, never pickle.

Tensors are named ``<part>.<name>``: part ``model`` holds the weights that count (the best so far);
an unfinished run also has ``last`` (current weights), ``adam`` (moments) and ``rng`` (generators).
The metadata key ``bignn`` is a JSON object, the header; ``digest`` is the digest of header and
tensors (docs/format.md).
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import fields
from types import NoneType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from bignn.config import ModelConfig
from bignn.config.input_bits import SIGN
from bignn.errors import FileError, InputError, WriteError, input_error, printable
from bignn.files import atomic_path, check_regular_file, content_digest
from bignn.graph.names import class_names_of
from bignn.nn import GNN, MODELS
from bignn.runtime.tensors import fault_of

FORMAT = "bignn-checkpoint"
VERSION = 2

Parts = dict[str, dict[str, Tensor]]

_PARTS = ("model", "last", "adam", "rng", "batches")
#: Fields of the header and their types.
_HEADER: dict[str, tuple[type, ...]] = {
    "format": (str,),
    "version": (int,),
    "config": (dict,),
    "settings": (dict,),
    "seed": (int,),
    "graph": (str,),
    "teachers": (str, NoneType),
    "progress": (dict,),
}
#: Fields that a header need not have.
_OPTIONAL: dict[str, tuple[type, ...]] = {"class_names": (list,)}
_EXPECTED = "expected a checkpoint (.safetensors) written by 'bignn train'"


def write(
    path: str | os.PathLike[str],
    parts: Mapping[str, Mapping[str, Tensor]],
    about: Mapping[str, Any],
) -> None:
    """Write a checkpoint; the previous one stays until the new one is whole."""
    tensors = {
        f"{part}.{name}": tensor.detach().cpu().contiguous()
        for part, named in parts.items()
        for name, tensor in named.items()
    }
    header = json.dumps({**about, "format": FORMAT, "version": VERSION})
    metadata = {"bignn": header, "digest": _digest(header, tensors)}
    with atomic_path(path) as temporary:
        try:
            save_file(tensors, temporary, metadata=metadata)
        except SafetensorError as error:  # as of a full disk
            raise WriteError(f"cannot write '{path}': {printable(error, 300)}") from error


def _digest(header: str, tensors: Mapping[str, Tensor]) -> str:
    return content_digest(
        header,
        (
            # As bytes, since NumPy does not have every type of torch's.
            (
                name,
                str(tensor.dtype).removeprefix("torch."),
                tensor.shape,
                tensor.reshape(-1).view(torch.uint8).numpy().data,
            )
            for name, tensor in sorted(tensors.items())
        ),
    )


def read(path: str | os.PathLike[str]) -> tuple[Parts, dict[str, Any]]:
    """Read the parts of a checkpoint and its header; refuse a damaged file in one line."""
    file = check_regular_file(
        path, "a checkpoint written by 'bignn train'", "give a checkpoint written by 'bignn train'"
    )
    try:
        with safe_open(file, framework="pt") as opened:
            metadata = dict(opened.metadata() or {})
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        if "bignn" not in metadata:
            raise ValueError("it has no header of bignn's")
        header = json.loads(metadata["bignn"])
        if not isinstance(header, dict):
            raise ValueError("its header is not an object")
        if header.get("format") == "bignn-model":
            raise FileError(
                f"'{file}' is a packed model, {_EXPECTED}; bignn.PackedModel.open and "
                "'bignn predict' take it as it is"
            )
        if header.get("format") != FORMAT or header.get("version") not in range(1, VERSION + 1):
            format_, version = (printable(repr(header.get(k)), 40) for k in ("format", "version"))
            raise FileError(
                f"'{file}' has format {format_} version {version}, expected {FORMAT!r} version "
                f"1 to {VERSION}; give a checkpoint written by 'bignn train'"
            )
        _check_digest(metadata, tensors, needed=header["version"] > 1)
        parts = _parts(tensors)
        if header["version"] == 1:
            upgrade_version_1(parts, header)
        _check_header(header)
        if "conv" in header["config"]:
            header["config"] = _ADDED_OPTIONS | header["config"]
    except FileError:
        raise
    except (SafetensorError, KeyError, TypeError, ValueError, OSError, RecursionError) as error:
        if zipfile.is_zipfile(file):
            raise FileError(
                f"'{file}' is a graph's .npz or another archive, {_EXPECTED}"
            ) from error
        raise FileError(
            f"'{file}' is not a whole checkpoint ({fault_of(file, error)}); "
            "give one written by 'bignn train'"
        ) from error
    return parts, header


def _check_digest(
    metadata: Mapping[str, str], tensors: Mapping[str, Tensor], *, needed: bool
) -> None:
    # A digest under a name that was damaged would pass for a file without one.
    if unknown := sorted(set(metadata) - {"bignn", "digest"}):
        raise ValueError(f"its metadata has an unknown key '{unknown[0]}'")
    if "digest" not in metadata:
        if needed:
            raise ValueError("it has no digest")
    elif metadata["digest"] != _digest(metadata["bignn"], tensors):
        raise ValueError("its digest is not that of its content")


def _parts(tensors: Mapping[str, Tensor]) -> Parts:
    parts: Parts = {}
    for key, tensor in tensors.items():
        part, _, name = key.partition(".")
        if part not in _PARTS:
            raise ValueError(f"its tensor '{key}' is of no known part")
        parts.setdefault(part, {})[name] = tensor
    return parts


def _check_header(header: Mapping[str, Any]) -> None:
    if wrong := (header.keys() ^ _HEADER.keys()) - _OPTIONAL.keys():
        name = sorted(wrong)[0]
        raise ValueError(f"its header {'lacks' if name in _HEADER else 'has an unknown'} '{name}'")
    for name, kinds in {**_HEADER, **_OPTIONAL}.items():
        if name in header and type(header[name]) not in kinds:  # a bool is no int here
            raise ValueError(f"the '{name}' of its header is {header[name]!r}")
    class_names_of(header.get("class_names", []))


#: What a model's options and the state of a GNN were called in version 1, and are called now.
_RENAMED_OPTIONS: tuple[tuple[str, str, dict[Any, Any]], ...] = (
    ("jump", "jk", {"none": None}),
    ("hops", "K", {}),
)
#: Options that a model got after version 2 began, as they are in files that do not have them.
_ADDED_OPTIONS: dict[str, Any] = {"edge_bits": None, "input_bits": SIGN}
_RENAMED_STATE = (("input_norm.", "input_stage."), ("head.lin.", "lin."))


def upgrade_version_1(parts: Parts, header: dict[str, Any]) -> None:
    """Give the options and tensors of a version 1 checkpoint the names of today, in place.

    Version 1 had no digest, and at first no teachers. A user's own modules keep their names.
    """
    header.setdefault("teachers", None)
    config = header.get("config")
    if not isinstance(config, dict) or "conv" not in config:
        return
    today = {field.name for field in fields(ModelConfig)}
    for old, new, values in _RENAMED_OPTIONS:
        if old in config and new in today:
            value = config.pop(old)
            config[new] = values.get(value, value)
    # The last map of 'cat' models was renamed together with their option.
    renamed = _RENAMED_STATE if "jk" in today else _RENAMED_STATE[:1]
    for part in ("model", "last"):
        for name in list(parts.get(part, ())):
            for old, new in renamed:
                if name.startswith(old):
                    parts[part][new + name.removeprefix(old)] = parts[part].pop(name)


def load_model(path: str | os.PathLike[str]) -> GNN:
    """Build the trained model of a checkpoint, in evaluation mode.

    Modules that are not a :class:`bignn.nn.GNN` cannot be built from a file: :func:`load_state`.
    """
    parts, header = read(path)
    config = header["config"]
    if "conv" not in config:
        raise FileError(
            f"'{path}' holds the weights of a module that is not a bignn.nn.GNN; make the module "
            "as it was and call bignn.load_state(module, path)"
        )
    try:
        model = MODELS.get(config["conv"], GNN)(**config)
        model.load_state_dict(parts["model"])
    except (InputError, KeyError, TypeError, RuntimeError) as error:
        line = printable(error, 300)
        raise FileError(f"'{path}' does not hold a bignn model ({line})") from error
    set_class_names(model, header.get("class_names"))
    return model.eval()


def set_class_names(model: nn.Module, names: Sequence[str] | None) -> None:
    """Give a trained model the names of its classes, which :func:`bignn.pack` takes from it.

    Another module than a :class:`bignn.nn.GNN` keeps what it has where there are none.
    """
    if names is not None or isinstance(model, GNN):
        model.class_names = None if names is None else tuple(names)  # type: ignore[assignment]


def load_state(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Load the best weights of a checkpoint into a module, in place; its mode stays.

    For modules of one's own, made as they were when ``bignn.fit(..., checkpoint_path=path)`` saved
    them (``bignn.binarize_`` included).
    """
    if not isinstance(model, nn.Module):
        raise input_error("model", "a torch.nn.Module", type(model).__name__)
    parts, header = read(path)
    theirs = parts.get("model", {})
    mine = model.state_dict()
    differences = [
        *(f"the module's '{name}' is not in the file" for name in mine if name not in theirs),
        *(
            f"the file's '{printable(name)}' is not in the module"
            for name in theirs
            if name not in mine
        ),
        *(
            f"'{name}' has shape {list(theirs[name].shape)} in the file, "
            f"{list(value.shape)} in the module"
            for name, value in mine.items()
            if name in theirs and theirs[name].shape != value.shape
        ),
    ]
    if differences:
        more = f" (and {len(differences) - 1} more)" if len(differences) > 1 else ""
        raise FileError(
            f"'{path}' does not fit this {type(model).__name__}: {differences[0]}{more}; make the "
            "module as it was when it was saved"
        )
    model.load_state_dict(theirs)
    set_class_names(model, header.get("class_names"))


def generator_state(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the random generators that training on this device draws from."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_generator_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Restore what :func:`generator_state` returned."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)


def copy_state(
    state: dict[str, Tensor], over: dict[str, Tensor] | None = None
) -> dict[str, Tensor]:
    """Copy the tensors of a state, over an older copy if there is one, which takes one launch."""
    if over is None or state.keys() != over.keys():
        return {name: tensor.detach().clone() for name, tensor in state.items()}
    for dtype in {tensor.dtype for tensor in state.values()}:
        names = [name for name, tensor in state.items() if tensor.dtype == dtype]
        torch._foreach_copy_([over[name] for name in names], [state[name] for name in names])
    return over
