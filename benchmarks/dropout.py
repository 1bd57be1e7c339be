"""How long does input dropout take on Cora's features: torch's own, and ours?

Run: .venv/bin/python benchmarks/dropout.py
"""

from __future__ import annotations

import torch

from bignn.lab.bench.timing import measure
from bignn.nn.dropout import dropout

if __name__ == "__main__":
    x = torch.randn(2708, 1433).sign()
    times = measure(
        {
            "torch.nn.functional.dropout": lambda: torch.nn.functional.dropout(x, 0.4),
            "bignn.nn.dropout": lambda: dropout(x, 0.4, training=True),
        }
    )
    slowest = max(seconds.median for seconds in times.values())
    for name, seconds in times.items():
        print(f"{name:<30} {1e3 * seconds.median:8.1f} ms {slowest / seconds.median:6.1f}x")
