"""Workers in step get the same answer, which is true only if all have the same value."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from components.processes.ports import free_ports
from tests.support import SUPPORT, warm

WORKER = SUPPORT / "agreement_worker.py"
HUGE = 2**24 + 1
"""Float32 cannot hold it."""

CASES = [
    ((100, 200, 300), False),
    ((300, 200, 100), False),
    ((0, 0, 0), True),
    ((1, 1, 0), False),
    ((12345, 12345, 12345), True),
    ((HUGE, HUGE, HUGE), True),
    ((HUGE, HUGE - 1, HUGE - 1), False),
    ((2**62 + 1, 2**62 + 1, 2**62 + 1), True),
    ((2**62 + 1, 2**62 + 1, 2**62), False),
]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_three_workers_agree(tmp_path: Path) -> None:
    workers = [f"127.0.0.1:{port}" for port in free_ports(3)]
    processes = []
    for number in range(3):
        config = {
            "cluster": {"worker": workers},
            "task": {"type": "worker", "index": number},
        }
        values = [str(values[number]) for values, _ in CASES]
        processes.append(
            warm.Popen(
                [sys.executable, str(WORKER), str(tmp_path / f"{number}"), *values],
                env={
                    **os.environ,
                    "PYTHONPATH": os.pathsep.join(sys.path),
                    "TF_CONFIG": json.dumps(config),
                },
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
    for process in processes:
        output, _ = process.communicate(timeout=100)
        assert process.returncode == 0, output[-3000:]
    expected = [answer for _, answer in CASES]
    for number in range(3):
        assert json.loads((tmp_path / f"{number}").read_text()) == expected
