"""The units and the CronJob in deploy/: systemd accepts them, and their commands exist."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

import local_runner
from pipeline.exit_codes import EXIT_LATER
from trainer_module.errors import ConfigError

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
    """Runs it with a config that has no schedule, which is found only after parsing."""
    python, script, *arguments = command
    assert (python, script) == (
        "/opt/scopeline/.venv/bin/python",
        "/opt/scopeline/local_runner.py",
    )
    here = {
        "/etc/scopeline/taxi.yaml": str(ROOT / "configs" / "taxi.yaml"),
        "/srv/scopeline/output": str(tmp_path),
    }
    words = [here.get(word, word) for word in arguments]
    done = CliRunner().invoke(local_runner.app, words)
    assert isinstance(done.exception, ConfigError), done.output
    assert "no trigger" in str(done.exception)


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not here")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for unit in DEPLOY.glob("scopeline*"):
        text = unit.read_text().replace("/opt/scopeline/.venv/bin/python", sys.executable)
        (tmp_path / unit.name).write_text(text)
    for path in [*UNITS, DEPLOY / "scopeline.timer"]:
        done = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", str(tmp_path / path.name)],
            capture_output=True,
            text=True,
        )
        assert [line for line in done.stderr.splitlines() if path.name in line] == []


def test_commands_of_units_and_cron_job_exist(tmp_path: Path) -> None:
    for path in UNITS:
        service = read_unit(path)["Service"]
        assert_command_parses(service["ExecStart"].split(), tmp_path)
        assert ("--once" in service["ExecStart"]) == (service.get("Type") == "oneshot")
        assert int(service["TimeoutStopSec"]) > GRACE_SECONDS
        assert service["User"] != "root"
    assert "--once" in container()[1]["command"]
    assert_command_parses(container()[1]["command"], tmp_path)
    assert read_unit(DEPLOY / "scopeline.timer")["Timer"]["Persistent"] == "true"


def test_exit_code_for_later_is_no_failure() -> None:
    once = read_unit(DEPLOY / "scopeline.service")["Service"]
    assert int(once["SuccessExitStatus"]) == EXIT_LATER
    job = read_manifests()["CronJob"]["spec"]["jobTemplate"]["spec"]
    pod, runs = container()
    # Kubernetes takes a policy for failures only where the pod itself is not started again.
    assert pod["restartPolicy"] == "Never"
    (rule,) = job["podFailurePolicy"]["rules"]
    codes = {"containerName": runs["name"], "operator": "In", "values": [EXIT_LATER]}
    assert rule == {"action": "Ignore", "onExitCodes": codes}


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
