"""How fast is the XNOR product, per backend, against torch's float32 product of the same shape?

Run: .venv/bin/python benchmarks/xnor.py   (one thread; Cora's first layer: 2708 x 1433 . 64)
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from bignn import bits, kernels
from bignn.lab.bench.timing import measure

if __name__ == "__main__":
    torch.set_num_threads(1)
    n, k, m = 2708, 1433, 64
    rng = np.random.default_rng(0)
    x, w = (
        rng.standard_normal((n, k), dtype=np.float32),
        rng.standard_normal((m, k), dtype=np.float32),
    )
    a, b = bits.pack(x), bits.pack(w)
    tx, tw = torch.from_numpy(x), torch.from_numpy(w).t()
    contenders: dict[str, Callable[[], object]] = {"torch float32": lambda: tx @ tw}
    for backend in kernels.available_backends():
        contenders[backend] = partial(kernels.xnor_matmul, a, b, k, backend=backend)
    times = {name: seconds.median for name, seconds in measure(contenders).items()}
    base = times["torch float32"]
    for name, seconds in times.items():
        rate = n * k * m / seconds / 1e9
        print(f"{name:<16} {1e3 * seconds:9.3f} ms {rate:8.1f} GMAC/s {base / seconds:7.1f}x torch")
