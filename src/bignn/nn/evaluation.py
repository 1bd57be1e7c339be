"""Evaluation mode for a while, and what evaluating a model tells of it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn

from bignn.errors import input_error


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """A model in evaluation mode; afterwards every module has its own mode again.

    ``model.train(was_training)`` would wake modules that were put in evaluation mode alone, such as
    a frozen batch normalisation.
    """
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


@contextmanager
def telling_widths(argument: str, num_features: int) -> Iterator[None]:
    """A model of others that reads another number of features is refused by its argument's name,
    instead of by torch's line on two matrices.
    """
    try:
        yield
    except RuntimeError as error:
        line = str(error).splitlines()[0]
        # Of the first product: others are the model's own affair.
        if not re.search(rf"shapes cannot be multiplied \(\d+x{num_features} and", line):
            raise
        expected = f"one that takes the graph's {num_features} features per node"
        raise input_error(argument, expected, f"torch's error: {line}") from error
