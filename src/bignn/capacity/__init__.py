"""How much hidden layers hold, and how wide binary ones must be for it (Sec. 6).

The names below are the public surface; other estimates are imported from their modules.
"""

from bignn.capacity.binning import entropy
from bignn.capacity.width import WidthAdvice, layer_entropies, lower_bound, recommend_width

__all__ = ["WidthAdvice", "entropy", "layer_entropies", "lower_bound", "recommend_width"]
