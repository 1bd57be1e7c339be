"""Context managers for evaluating a model: its mode, and clear errors for wrong widths."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from bignn.errors import input_error


def has_forward(model: nn.Module) -> bool:
    """Whether a module can be called: it has a forward of its own."""
    return type(model).forward is not nn.Module.forward or "forward" in vars(model)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put a model in evaluation mode; afterwards every module has its own mode again.

    ``model.train(was_training)`` would also wake modules that alone were in evaluation mode, such
    as a frozen batch normalisation.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def naming_width_errors(argument: str, *num_features: int) -> Iterator[None]:
    """Replace torch's error for a wrong number of features by one that names the argument.

    Several numbers are those of several types of nodes.
    """
    try:
        yield
    except RuntimeError as error:
        line = str(error).splitlines()[0]
        # Only the first product reads the features; other errors are raised as they are.
        found = re.search(r"shapes cannot be multiplied \(\d+x(\d+) and", line)
        if found is None or int(found[1]) not in num_features:
            raise
        expected = f"one that takes the graph's {found[1]} features per node"
        raise input_error(argument, expected, f"torch's error: {line}") from error
