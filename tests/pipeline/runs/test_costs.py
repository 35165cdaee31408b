"""What a component is measured to have used, beside what the kernel reports of its process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.runs.costs import CostMeter

PROBE = """
import json, os, subprocess, sys, time
from pipeline.runs.costs import CostMeter

BURN = '''
import os, time
memory = bytearray(300 << 20)
while time.process_time() < 1:
    pass
with open("written", "wb") as file:
    file.write(memory[:20 << 20])
    os.fsync(file.fileno())
time.sleep(0.5)
'''
meter = CostMeter()
with meter.measure("idle"):
    time.sleep(0.5)
# The shell starts the burner and waits for it, as the fork server does for its workers.
with meter.measure("subprocess"):
    child = subprocess.Popen(["sh", "-c", '"$0" -c "$1"; true', sys.executable, BURN])
    _, _, used = os.wait4(child.pid, 0)
with meter.measure("own process"):
    began = time.process_time()
    del (memory := [bytearray(300 << 20)])[:]  # Shorter than the time between two samples.
    while time.process_time() - began < 1:
        pass
    burned = time.process_time() - began
try:
    with meter.measure("failed"):
        raise RuntimeError
except RuntimeError:
    pass
costs = {name: cost.model_dump() for name, cost in meter.costs.items()}
rusage = {"cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss << 10, "burned": burned}
print(json.dumps({"costs": costs, "rusage": rusage}))
"""


def test_costs_agree_with_the_kernels_own_within_a_tenth(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        cwd=tmp_path,
        env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)
    costs, rusage = measured["costs"], measured["rusage"]
    idle = costs["idle"]["peak_bytes"]
    assert costs["idle"]["cpu_seconds"] < 0.1
    assert costs["subprocess"]["cpu_seconds"] == pytest.approx(rusage["cpu"], rel=0.1)
    assert costs["subprocess"]["peak_bytes"] - idle == pytest.approx(rusage["peak"], rel=0.1)
    assert costs["subprocess"]["written_bytes"] == pytest.approx(20 << 20, rel=0.1)
    assert costs["own process"]["cpu_seconds"] == pytest.approx(rusage["burned"], rel=0.1)
    assert costs["own process"]["peak_bytes"] - idle == pytest.approx(300 << 20, rel=0.1)
    assert "failed" in costs


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
