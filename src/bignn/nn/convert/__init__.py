"""Conversion of PyG models into binary ones, and tracing of converted models for packing."""

from bignn.nn.convert.binarize_model import binarize_
from bignn.nn.convert.report import Report, ReportEntry

__all__ = ["Report", "ReportEntry", "binarize_"]
