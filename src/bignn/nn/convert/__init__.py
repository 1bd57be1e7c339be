"""PyG models become binary: conversion, and tracing what a converted model computes."""

from bignn.nn.convert.binarize_model import binarize_

__all__ = ["binarize_"]
