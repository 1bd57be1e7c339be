"""Arrays that do not fit never reach native code."""

from typing import Any, cast

import numpy as np
import pytest
from layer_problems import make_problem, misaligned

from bignn.kernels import native
from bignn.kernels.chain import Chain
from bignn.kernels.operands import Layer, Way


def test_arrays_that_do_not_fit_are_refused_before_they_are_read(instruction_set: str) -> None:
    problem = make_problem(3, [65, 40, 7], [[2] * 9, [3] * 9], 9)

    def steps(ways: str) -> list[dict[str, Any]]:
        layers = [
            Layer(weights, edges, cast(Way, way), norm)
            for weights, edges, way, norm in zip(
                problem.weights, problem.edges, ways, problem.norms, strict=True
            )
        ]
        features, factor = problem.features, problem.source_factor
        return Chain(layers, features, factor, "values", instruction_set)._steps()

    tried = set()
    for ways in ("TT", "GG", "ST"):
        for number, step in enumerate(steps(ways)):
            for name, values in step.items():
                if not isinstance(values, np.ndarray):
                    continue
                tried.add(name)
                # Nor is a copy made of what is not as it must be: it would be gone when it is read.
                strided = np.repeat(values.reshape(-1), 2)[::2]
                for broken in (values.reshape(-1)[:-1], values.astype(np.float64), strided):
                    if broken is strided and strided.size == 1:
                        continue  # one item has no stride
                    changed = steps(ways)
                    changed[number][name] = broken
                    with pytest.raises(ValueError, match=f"field '{name}' has the wrong type or"):
                        native.program(changed, instruction_set)
                if values.itemsize > 1:
                    changed = steps(ways)
                    changed[number][name] = misaligned(values)
                    with pytest.raises(ValueError, match=f"field '{name}' is not aligned"):
                        native.program(changed, instruction_set)
    assert {"ids", "offsets", "panels", "records", "signs", "product", "out_words"} <= tried
    changed = steps("TT")
    del changed[0]["scale"]
    with pytest.raises(ValueError, match="field 'scale' is missing"):
        native.program(changed, instruction_set)
    for bytes_per_column in (0, 3, 8):
        changed = steps("TT")
        changed[1]["bytes_per_column"] = bytes_per_column
        with pytest.raises(ValueError, match="'bytes_per_column' must be 1, 2 or 4"):
            native.program(changed, instruction_set)
    for bad in (65, -1, 2**31 - 1):
        changed = steps("ST")
        changed[0]["feature_inputs"] = changed[0]["feature_inputs"].copy()
        changed[0]["feature_inputs"][-1] = bad
        with pytest.raises(ValueError, match="'feature_inputs' names inputs that do not exist"):
            native.program(changed, instruction_set)
    program = native.program(steps("TT"), instruction_set)
    with pytest.raises(ValueError, match="no such step"):
        program.run(3, None)
    for out in (
        None,
        np.empty(9, dtype=np.int32),
        np.empty(8, dtype=np.int64),
        np.empty((9, 6), dtype=np.float32),
        np.empty((9, 7), dtype=np.float64),
        np.empty((9, 14), dtype=np.float32)[:, ::2],
    ):
        with pytest.raises(ValueError, match="'out' does not take the last step's rows"):
            program.run(2, out)
    for begin, end, rows in ((0, 10, 10), (3, 2, 0), (0, 2, 1)):
        with pytest.raises(ValueError, match="no such rows"):
            program.run_rows(begin, end, np.empty((rows, 7), dtype=np.float32))
    with pytest.raises(ValueError, match="no such step"):
        native.program([], instruction_set).run_rows(0, 0, np.empty((0, 7), dtype=np.float32))
    for name in ("mmx", ""):
        with pytest.raises(ValueError, match=f"no '{name}' kernels"):
            native.program(steps("TT"), name)
