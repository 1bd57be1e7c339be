"""The packages of the extra ``lab``: asked for before the work that needs them."""

from __future__ import annotations

from importlib import import_module

from bignn.errors import missing_extra


def check_lab() -> None:
    """Refuse in one line where matplotlib, SciPy or Jinja2 is not installed."""
    for package in ("matplotlib.style", "scipy.stats", "jinja2"):
        try:
            import_module(package)
        except ImportError as error:
            line = missing_extra("making pages and figures", error)
            raise ImportError(line or str(error), name=error.name) from error
