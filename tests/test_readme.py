"""The README's quickstart runs as printed."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import bignn
from bignn import train

README = Path(__file__).parent.parent / "README.md"


def test_quickstart_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)  # it writes a file
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    fit = train.fit

    def short_fit(model: Any, graph: Any) -> bignn.FitResult:
        return fit(model, graph, replace(bignn.Settings(), epochs=3), progress=False)

    monkeypatch.setattr(train, "fit", short_fit)
    names: dict[str, Any] = {}
    exec(code, names)
    assert "test accuracy" in capsys.readouterr().out
    assert names["classes"].shape == (2708,)
