"""The class of recipes: a model's options, its width and depth, and its training. No torch."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from bignn.config import BinarizeMode, ModelOptions, Settings
from bignn.config.options import COUNT, about, option
from bignn.errors import InputError
from bignn.graph import GraphLike, as_graph
from bignn.runtime.parts.graph_part import GraphPart
from bignn.runtime.store import Store

if TYPE_CHECKING:
    from bignn.nn import GNN


@dataclass(frozen=True)
class Recipe(ModelOptions):
    """A model and its training."""

    binarize: BinarizeMode = field(metadata=about("what is 1-bit"))
    settings: Settings
    hidden_channels: int = option(64, "hidden neurons per layer, per head with attention", COUNT)
    num_layers: int = option(2, "number of convolutions", COUNT)

    def build(self, graph: GraphLike | GraphPart | Store) -> GNN:
        """Build a freshly initialised model for a graph; draws from torch's generator."""
        from bignn.nn import GNN, MODELS

        whole: Any = graph
        if isinstance(graph, GraphPart):
            whole = graph.partition
        elif not isinstance(graph, Store):
            whole = as_graph(graph)
        if whole.num_classes == 0:
            raise InputError(
                f"{whole.name}: training needs labels 'y'; 'bignn convert --graph --labels' "
                "adds them"
            )
        options = {option.name: getattr(self, option.name) for option in fields(ModelOptions)}
        kind = MODELS.get(self.conv, GNN)
        sizes = (whole.num_features, self.hidden_channels, self.num_layers, whole.num_classes)
        return kind(*sizes, **options)
