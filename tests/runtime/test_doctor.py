"""What ``bignn doctor`` finds out about a CPU that is not this one."""

import pytest

from bignn.runtime import doctor


def test_features_of_arm_cpus_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    info = {"Features": "fp asimd evtstrm asimddp"}
    monkeypatch.setattr(doctor, "cpu_info", lambda key: info.get(key, ""))
    report = doctor.examine()
    assert report["cpu_features"] == ["asimd", "asimddp"]
    assert "asimd asimddp" in doctor.describe(report)
