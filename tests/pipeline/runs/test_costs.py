"""What a component is measured to have used, beside what the kernel reports of its process."""

from __future__ import annotations

import pytest

from pipeline.runs.costs import CostMeter


@pytest.mark.parametrize("broken", ["threading.Thread.start", "psutil.Process.io_counters"])
def test_failed_measurement_does_not_fail_the_component(
    broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(broken, fail)
    meter, has_run = CostMeter(), False
    with meter.measure("Trainer"):
        has_run = True
    assert has_run
    assert meter.costs == {}
    with pytest.raises(KeyError), meter.measure("Trainer"):
        raise KeyError  # The error of the component is not replaced.
