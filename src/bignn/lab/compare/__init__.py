"""``bignn compare``: float models against their binary twins on a user's own graph."""

from bignn.lab.compare.comparing import run
from bignn.lab.compare.comparison import MODELS, Comparison
from bignn.lab.compare.page import document_of
from bignn.lab.compare.text import describe

__all__ = ["MODELS", "Comparison", "describe", "document_of", "run"]
