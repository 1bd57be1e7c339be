"""What a recipe is: a model's options, how wide and deep it is, and how to train it. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING

from bignn.config import BinarizeMode, ModelOptions, Settings
from bignn.config.options import COUNT, about, option
from bignn.errors import InputError
from bignn.graph import GraphLike, as_graph

if TYPE_CHECKING:
    from bignn.nn import GNN


@dataclass(frozen=True)
class Recipe(ModelOptions):
    """A model and how to train it."""

    binarize: BinarizeMode = field(metadata=about("what is 1-bit"))
    settings: Settings
    hidden: int = option(64, "hidden neurons per layer, per head with attention", COUNT)
    layers: int = option(2, "number of convolutions", COUNT)

    def build(self, graph: GraphLike) -> GNN:
        """A freshly initialised model for this graph (draws from torch's generator)."""
        from bignn.nn import GNN, MODELS

        graph = as_graph(graph)
        if graph.num_classes == 0:
            raise InputError(
                f"{graph.name}: training needs labels 'y'; 'bignn convert --graph --labels' "
                "adds them"
            )
        options = {option.name: getattr(self, option.name) for option in fields(ModelOptions)}
        kind = MODELS.get(self.conv, GNN)
        return kind(graph.num_features, self.hidden, self.layers, graph.num_classes, **options)
