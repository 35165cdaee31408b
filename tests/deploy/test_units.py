"""The examples in deploy/: systemd takes the units, and their commands are ones that exist."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.exit_codes import EXIT_LATER

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = sorted(DEPLOY.glob("*.service"))
GRACE_SECONDS = 60


def read_unit(path: Path) -> configparser.ConfigParser:
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str
    unit.read_string(path.read_text())
    return unit


def read_manifests() -> dict[str, Any]:
    return {m["kind"]: m for m in yaml.safe_load_all((DEPLOY / "cronjob.yaml").read_text())}


def container() -> tuple[dict[str, Any], dict[str, Any]]:
    pod = read_manifests()["CronJob"]["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return pod, pod["containers"][0]


def assert_command_parses(command: list[str], tmp_path: Path) -> None:
    """Runs it with the paths of here: the config has no schedule, which is said after parsing."""
    here = {
        "/opt/scopeline/.venv/bin/python": sys.executable,
        "/opt/scopeline/local_runner.py": str(ROOT / "local_runner.py"),
        "/etc/scopeline/taxi.yaml": str(ROOT / "configs" / "taxi.yaml"),
        "/srv/scopeline/output": str(tmp_path),
    }
    done = subprocess.run(
        [here.get(part, part) for part in command], cwd=ROOT, capture_output=True, text=True
    )
    assert "the schedule has no trigger" in done.stderr
    assert done.returncode == 2


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
@pytest.mark.parametrize("path", [*UNITS, DEPLOY / "scopeline.timer"], ids=lambda p: p.name)
def test_systemd_takes_the_unit(path: Path, tmp_path: Path) -> None:
    for unit in DEPLOY.glob("scopeline*"):
        text = unit.read_text().replace("/opt/scopeline/.venv/bin/python", sys.executable)
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(tmp_path / path.name)],
        capture_output=True,
        text=True,
    )
    said = [line for line in done.stderr.splitlines() if path.name in line]
    assert said == []


@pytest.mark.parametrize("path", UNITS, ids=lambda p: p.name)
def test_unit_runs_a_command_that_exists(path: Path, tmp_path: Path) -> None:
    service = read_unit(path)["Service"]
    assert_command_parses(service["ExecStart"].split(), tmp_path)
    assert ("--once" in service["ExecStart"]) == (service.get("Type") == "oneshot")
    assert int(service["TimeoutStopSec"]) > GRACE_SECONDS
    assert service["User"] != "root"


def test_timer_starts_its_service() -> None:
    timer = read_unit(DEPLOY / "scopeline.timer")["Timer"]
    assert (DEPLOY / "scopeline.service").exists()
    assert timer["Persistent"] == "true"


def test_cron_job_runs_a_command_that_exists(tmp_path: Path) -> None:
    _, runs = container()
    assert "--once" in runs["command"]
    assert_command_parses(runs["command"], tmp_path)


def test_what_passes_by_itself_is_no_failure() -> None:
    once = read_unit(DEPLOY / "scopeline.service")["Service"]
    assert int(once["SuccessExitStatus"]) == EXIT_LATER
    job = read_manifests()["CronJob"]["spec"]["jobTemplate"]["spec"]
    pod, runs = container()
    # Kubernetes takes a policy for failures only where the pod itself is not started again.
    assert pod["restartPolicy"] == "Never"
    (rule,) = job["podFailurePolicy"]["rules"]
    assert rule == {
        "action": "Ignore",
        "onExitCodes": {"containerName": runs["name"], "operator": "In", "values": [EXIT_LATER]},
    }


def test_cron_job_is_confined_and_keeps_its_output() -> None:
    manifests = read_manifests()
    pod, runs = container()
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert runs["securityContext"]["readOnlyRootFilesystem"] is True
    assert runs["securityContext"]["allowPrivilegeEscalation"] is False
    assert manifests["CronJob"]["spec"]["concurrencyPolicy"] == "Forbid"
    claim = next(v for v in pod["volumes"] if "persistentVolumeClaim" in v)
    name = manifests["PersistentVolumeClaim"]["metadata"]["name"]
    assert claim["persistentVolumeClaim"]["claimName"] == name
    mounts = {mount["name"]: mount["mountPath"] for mount in runs["volumeMounts"]}
    assert set(mounts) == {volume["name"] for volume in pod["volumes"]}
    output = runs["command"][runs["command"].index("--output") + 1]
    assert output.startswith(mounts[claim["name"]])
    assert pod["terminationGracePeriodSeconds"] > GRACE_SECONDS
