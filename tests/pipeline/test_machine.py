"""The screen, the log, the lock, shipped data and the doctor: what a run stands on."""

from __future__ import annotations

import io
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from components.example_gen.builtin import BUILTIN_DATA
from pipeline.cli import doctor
from pipeline.config import user_code
from pipeline.config.user_code import code_fingerprint
from pipeline.layout import Layout
from pipeline.lock import run_lock
from pipeline.records.summary import MetricSummary, RunSummary, State, Status
from pipeline.runs.console import RunConsole
from trainer_module.runtime import PROGRESS_LOGGER, report_notice, report_progress

ROOT = Path(__file__).parents[2]


def make_summary(**changes) -> RunSummary:
    return RunSummary(run_id="r", pipeline="p", started="now", strategy="default", **changes)


def test_screen_without_a_terminal_is_plain_lines(monkeypatch) -> None:
    stream = io.StringIO()
    console = RunConsole(stream)
    logger = logging.getLogger(PROGRESS_LOGGER)
    logger.addHandler(console)
    logger.setLevel(logging.INFO)
    console.started("Trainer")
    report_progress(3, 12, "epoch", "loss 0.5 [sic]")
    report_progress(4, 12, "first on a part, epoch")
    report_progress(5, 12, "forest")
    monkeypatch.setattr("pipeline.runs.console.QUIET_SECONDS", 0)
    report_progress(6, 12, "forest")
    report_notice("waits for worker 1")
    console.finished("Trainer", State.RAN, 2.345, "12 epochs")
    logger.removeHandler(console)
    assert stream.getvalue() == (
        "  Trainer           epoch 3 of 12  loss 0.5 [sic]\n"
        "  Trainer           first on a part, epoch 4 of 12\n"
        "  Trainer           forest 6 of 12\n"
        "  Trainer           waits for worker 1\n"
        "  Trainer           ran         2.3 s  12 epochs\n"
    )


def test_screen_shows_metrics_and_verdict() -> None:
    stream = io.StringIO()
    metric = MetricSummary(value=0.5, in_service=None, needs="at least 0.9", ok=False)
    RunConsole(stream).conclude(
        make_summary(
            status=Status.NOT_BLESSED, metrics={"auc": metric}, reason="auc is 0.5, below 0.9"
        ),
        ["summary: s.json"],
    )
    shown = stream.getvalue()
    assert "at least 0.9: not met" in shown
    assert "not blessed, not pushed: auc is 0.5, below 0.9" in shown
    assert shown.endswith("summary: s.json\n")


def test_summary_is_json_that_any_program_reads(tmp_path: Path) -> None:
    metric = MetricSummary(value=float("nan"), in_service=0.5, needs="", ok=False)
    make_summary(status=Status.FAILED, metrics={"auc": metric}).write(tmp_path / "summary.json")
    read = json.loads((tmp_path / "summary.json").read_text())
    found = read["metrics"]["auc"]
    assert found == dict.fromkeys(found) | {"in_service": 0.5, "needs": "", "ok": False}
    assert "value" in found
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]


@pytest.mark.parametrize("verbose", [False, True])
def test_log_has_output_of_all_languages(verbose: bool, tmp_path: Path) -> None:
    script = (
        "import logging, os, sys\n"
        "from pathlib import Path\n"
        "from pipeline.runs.logs import redirected_output\n"
        "from trainer_module.runtime import report_step\n"
        "logging.basicConfig()\n"
        f"with redirected_output(Path({str(tmp_path / 'run.log')!r}), {verbose}) as screen:\n"
        "    os.write(2, b'from C++\\n')\n"
        "    print('from Python')\n"
        "    logging.getLogger('tfx').info('from a logger')\n"
        "    report_step('epoch 1', 1, 2, left='about')\n"
        "    report_step('9 rows read', is_logged=False)\n"
        "    print('for people', file=screen)\n"
        "print('afterwards')\n"
        "logging.warning('later')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
    )
    log = (tmp_path / "run.log").read_text()
    progress = "INFO scopeline.progress: epoch 1\n"
    for line in ("from C++\n", "from Python\n", "INFO tfx: from a logger\n", progress):
        assert line in log
        assert (line in done.stderr) == verbose
    assert (log.count("from a logger"), log.count("rows read")) == (1, 0)
    assert done.stderr.endswith("WARNING:root:later\n")
    assert done.stdout == "for people\nafterwards\n"


@pytest.mark.parametrize("verbose", [True])
def test_full_disk_of_the_log_does_not_end_the_run(verbose: bool) -> None:
    script = (
        "import logging, os, sys\n"
        "from pathlib import Path\n"
        "from pipeline.runs.logs import redirected_output\n"
        f"with redirected_output(Path('/dev/full'), {verbose}) as screen:\n"
        "    for part in range(3):\n"
        "        print(f'part {part}' * 10_000)\n"
        "        logging.getLogger('tfx').warning('from a logger')\n"
        "        print('for people', file=screen)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-1000:]
    assert done.stdout == "for people\n" * 3
    why = (
        "/dev/full: cannot be written (No space left on device); until the file can be written "
        "again, output is lost"
    )
    assert done.stderr.count(why) == 1
    assert ("part 2" in done.stderr) == verbose
    assert "Traceback" not in done.stderr


def test_closed_screen_does_not_end_the_run(tmp_path: Path) -> None:
    script = (
        "import logging\n"
        "from pathlib import Path\n"
        "from pipeline.runs.console import RunConsole\n"
        "from pipeline.runs.logs import redirected_output\n"
        "from trainer_module.runtime import PROGRESS_LOGGER, report_progress\n"
        f"with redirected_output(Path({str(tmp_path / 'run.log')!r}), False) as screen:\n"
        "    logging.getLogger(PROGRESS_LOGGER).addHandler(RunConsole(screen))\n"
        "    for epoch in range(1, 4):\n"
        "        report_progress(epoch, 3, 'epoch')\n"
    )
    reading, writing = os.pipe()
    os.close(reading)
    subprocess.run([sys.executable, "-c", script], cwd=ROOT, stdout=writing, check=True)
    os.close(writing)
    assert "epoch 3 of 3" in (tmp_path / "run.log").read_text()


def test_lock_is_for_one(tmp_path: Path) -> None:
    layout = Layout(tmp_path, "digits")
    with run_lock(layout):
        script = (
            "from pathlib import Path\n"
            "from pipeline.layout import Layout\n"
            "from pipeline.lock import run_lock\n"
            f"with run_lock(Layout(Path({str(tmp_path)!r}), 'digits')): pass\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True
        )
        assert "another run of `digits` is under way" in done.stderr
    with run_lock(layout):
        pass


def test_shipped_data_is_real_and_made_once(tmp_path: Path) -> None:
    digits = BUILTIN_DATA["digits"].locate(tmp_path)
    files = sorted(digits.glob("*/*.png"))
    assert len(files) == 1797
    assert {path.parent.name for path in files} == set("0123456789")
    before = {path: path.stat().st_mtime_ns for path in files}
    assert BUILTIN_DATA["digits"].locate(tmp_path) == digits
    assert {path: path.stat().st_mtime_ns for path in files} == before
    assert [path.name for path in tmp_path.iterdir()] == ["digits"]
    taxi = BUILTIN_DATA["taxi"].locate(tmp_path).read_text().splitlines()
    assert len(taxi) == 15_003
    assert "big_tipper" in taxi[0]


def test_fingerprint_follows_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_code, "ROOT", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "components").mkdir()
    (tmp_path / "components" / "a.py").write_text("x = 1")
    (tmp_path / "own.py").write_text("def f(): pass")

    def found(*own: str) -> str:
        return code_fingerprint(["components.a"], own)

    prints = [found(), found("own.f")]
    (tmp_path / "own.py").write_text("def f(): return 1")
    prints.append(found("own.f"))
    (tmp_path / "helpers").mkdir()
    (tmp_path / "own.py").write_text("def f():\n    from helpers import shapes\n    return 1")
    (tmp_path / "helpers" / "shapes.py").write_text("import json\nfrom . import sizes\n")
    (tmp_path / "helpers" / "sizes.py").write_text("import own, numpy\nWIDE = 1\n")
    prints.append(found("own.f"))
    (tmp_path / "helpers" / "sizes.py").write_text("import own, numpy\nWIDE = 2\n")
    prints.append(found("own.f"))
    (tmp_path / "helpers" / "unused.py").write_text("x = 1")
    assert found("own.f") == prints[-1]
    (tmp_path / "components" / "a.py").write_text("x = 2")
    prints.append(found("own.f"))
    assert len(set(prints)) == 6
    assert found("own.f") == prints[-1]


@pytest.mark.slow
def test_doctor_finds_this_machine_ready() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "local_runner.py", "doctor", "--fix"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    assert "relaxed" not in done.stdout
    assert "tensorflow                  2.21" in done.stdout
    assert done.stdout.endswith("\nready\n")


def test_doctor_gives_advice(monkeypatch) -> None:
    monkeypatch.setattr(doctor, "MIN_DISK", 2**60)
    monkeypatch.setattr(doctor, "MIN_MEMORY", 2**60)
    monkeypatch.setattr(doctor, "LIBRARIES", ("no_such_library",))
    monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
    findings = {finding.subject: finding for finding in doctor.examine(Path("/sys/scopeline"))}
    assert findings["disk"].level is doctor.Level.WARNING
    assert findings["memory"].level is doctor.Level.WARNING
    assert findings["no_such_library"].level is doctor.Level.PROBLEM
    assert findings["Keras"].level is doctor.Level.PROBLEM
    assert all(f.advice for f in findings.values() if f.level is not doctor.Level.OK)
