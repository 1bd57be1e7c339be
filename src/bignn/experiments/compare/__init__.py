"""``bignn compare``: float models against their binary twins on a user's own graph."""

from bignn.experiments.compare.comparison import MODELS, Comparison, run
from bignn.experiments.compare.page import document_of
from bignn.experiments.compare.text import describe

__all__ = ["MODELS", "Comparison", "describe", "document_of", "run"]
