"""The ways to run a model that the benchmarks compare, each in the best form its users have.

A contender is built from a problem's structure; ``load`` makes its features and weights, arrays of
its own in the form that it runs with, and buffers; ``run`` predicts all classes. All torch ones run
without gradients.
"""

from bignn.errors import input_error
from bignn.lab.bench.contenders.base import Contender, Packed
from bignn.lab.bench.contenders.gat import PyGGat, SimulatedGat, TorchGat
from bignn.lab.bench.contenders.gcn import PyGEdgeIndex, PyGSparse, SimulatedGcn, TorchSparse
from bignn.lab.bench.contenders.sage import PyGSage, PyGSageSparse, SimulatedSage, TorchSage
from bignn.lab.bench.contenders.simulated import Simulated
from bignn.lab.bench.problems import MODELS

__all__ = ["Contender", "Packed", "Simulated", "contenders_of"]

_CONTENDERS: dict[str, dict[str, type[Contender]]] = {
    "gcn": {
        "packed": Packed,
        "pyg": PyGEdgeIndex,
        "pyg_sparse": PyGSparse,
        "torch_sparse": TorchSparse,
        "simulated": SimulatedGcn,
    },
    "sage": {
        "packed": Packed,
        "pyg": PyGSage,
        "pyg_sparse": PyGSageSparse,
        "torch_sparse": TorchSage,
        "simulated": SimulatedSage,
    },
    "gat": {
        "packed": Packed,
        "pyg": PyGGat,
        "torch_sparse": TorchGat,
        "simulated": SimulatedGat,
    },
}


def contenders_of(conv: str) -> dict[str, type[Contender]]:
    """Return the contenders of a model, by name."""
    if conv not in _CONTENDERS:
        raise input_error("model", f"one of {list(MODELS)}", repr(conv))
    return _CONTENDERS[conv]
