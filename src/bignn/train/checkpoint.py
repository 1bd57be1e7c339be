"""Checkpoints: one safetensors file, written whole or not at all, never pickle.

Tensors are named ``<part>.<name>``: part ``model`` holds the weights that count (the best so far);
an unfinished run also has ``last`` (current weights), ``adam`` (moments) and ``rng`` (generators).
The metadata key ``bignn`` is a JSON object: ``format``, ``version``, and what the writer adds.
"""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from bignn.errors import FileError, WriteError, input_error
from bignn.files import atomic_path
from bignn.nn import GNN, MODELS

FORMAT = "bignn-checkpoint"
VERSION = 1

_EXPECTED = "expected a checkpoint (.safetensors) written by 'bignn train'"

Parts = dict[str, dict[str, Tensor]]


def write(
    path: str | os.PathLike[str], parts: Mapping[str, Mapping[str, Tensor]], about: Any
) -> None:
    """Writes a checkpoint; the previous one stays until the new one is whole."""
    tensors = {
        f"{part}.{name}": tensor.detach().contiguous()
        for part, named in parts.items()
        for name, tensor in named.items()
    }
    header = {"format": FORMAT, "version": VERSION, **about}
    with atomic_path(path) as temporary:
        try:
            save_file(tensors, temporary, metadata={"bignn": json.dumps(header)})
        except SafetensorError as error:  # as of a full disk
            raise WriteError(f"cannot write '{path}': {error}") from error


def read(path: str | os.PathLike[str]) -> tuple[Parts, dict[str, Any]]:
    """The parts of a checkpoint and its JSON header."""
    file = Path(path)
    if not file.is_file():
        problem = "is not a file" if file.exists() else "does not exist"
        raise FileError(f"'{file}' {problem}; give a checkpoint written by 'bignn train'")
    try:
        with safe_open(file, framework="pt") as opened:
            about = dict(json.loads((opened.metadata() or {})["bignn"]))
            parts: Parts = {}
            for key in opened.keys():  # noqa: SIM118 (not a mapping)
                part, _, name = key.partition(".")
                parts.setdefault(part, {})[name] = opened.get_tensor(key)
    except (SafetensorError, KeyError, TypeError, ValueError, OSError) as error:
        if zipfile.is_zipfile(file):
            raise FileError(
                f"'{file}' is a graph's .npz or another archive, {_EXPECTED}"
            ) from error
        raise FileError(
            f"'{file}' is not a whole checkpoint ({error}); give one written by 'bignn train'"
        ) from error
    if about.get("format") == "bignn-model":
        raise FileError(
            f"'{file}' is a packed model, {_EXPECTED}; bignn.PackedModel.open and 'bignn predict' "
            "take it as it is"
        )
    if about.get("format") != FORMAT or about.get("version") != VERSION:
        raise FileError(
            f"'{file}' has format {about.get('format')!r} version {about.get('version')!r}, "
            f"expected {FORMAT!r} version {VERSION}; give a checkpoint written by 'bignn train'"
        )
    return parts, about


def load_model(path: str | os.PathLike[str]) -> GNN:
    """The trained model of a checkpoint, in evaluation mode.

    Modules that are not a :class:`bignn.nn.GNN` cannot be built from a file: :func:`load_state`.
    """
    parts, about = read(path)
    if isinstance(about.get("config"), dict) and "conv" not in about["config"]:
        raise FileError(
            f"'{path}' holds the weights of a module that is not a bignn.nn.GNN; make the module "
            "as it was and call bignn.load_state(module, path)"
        )
    try:
        model = MODELS.get(about["config"]["conv"], GNN)(**about["config"])
        model.load_state_dict(parts["model"])
    except (KeyError, TypeError, RuntimeError) as error:
        line = str(error).splitlines()[0]
        raise FileError(f"'{path}' does not hold a bignn model ({line})") from error
    return model.eval()


def load_state(model: nn.Module, path: str | os.PathLike[str]) -> None:
    """Loads the best weights of a checkpoint into a module, in place; its mode stays.

    For modules of one's own, made as they were when ``bignn.fit(..., checkpoint_path=path)`` saved
    them (``bignn.binarize_`` included).
    """
    if not isinstance(model, nn.Module):
        raise input_error("model", "a torch.nn.Module", type(model).__name__)
    theirs = read(path)[0].get("model", {})
    mine = model.state_dict()
    differences = [
        *(f"the module's '{name}' is not in the file" for name in mine if name not in theirs),
        *(f"the file's '{name}' is not in the module" for name in theirs if name not in mine),
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


def generator_state(device: torch.device) -> dict[str, Tensor]:
    """The random generators that training on this device draws from."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_generator_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    """Undoes :func:`generator_state`."""
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
