"""Workers as pods of a small Kubernetes: one is killed, and a right is missing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from components.processes.launcher import Place
from components.processes.supervisor import Policy
from tests.support import kube_checks, kube_server
from tests.support.kube_gangs import VOLUME, meanwhile, needs_pods, run, serving, wait_until
from tests.support.kube_server import KubeServer
from tests.support.kube_workers import spec, starts, workers
from trainer_module.errors import ConfigError


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeServer]:
    with serving(tmp_path, monkeypatch) as server:
        yield server


@pytest.mark.slow
@needs_pods
@pytest.mark.timeout(120)
def test_killed_worker_is_replaced_while_the_chief_goes_on(
    kube: KubeServer, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    kube.cluster.backoff = 2
    gang = [
        spec(Place("chief", 0), "wait_for", VOLUME, waits_for=["worker1"]),
        spec(Place("worker", 0), "sleep", VOLUME),
        spec(Place("worker", 1), "sleep", VOLUME),
        spec(Place("ps", 0), "sleep", VOLUME),
    ]

    def kill() -> None:
        wait_until(lambda: bool(starts(data, "chief0") and starts(data, "worker1")))
        time.sleep(1)  # Until the supervisor knows it, too.
        kube.pod("worker", 1).kill()

    with meanwhile(kill):
        assert run(gang, policy=Policy.COORDINATOR) == ["worker 1 was killed by SIGKILL"]
    first, second = starts(data, "worker1")
    assert first["host"] == second["host"]
    assert first["environment"]["PASSWORD"] == "secret"  # noqa: S105
    assert len(starts(data, "chief0")) == len(starts(data, "worker0")) == 1
    assert kube.left == []
    for body in (*kube.bodies("Job"), *kube.bodies("Service")):
        (owner,) = body["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Pod", kube_server.OWNER)


@pytest.mark.slow
@needs_pods
@pytest.mark.timeout(120)
def test_missing_right_of_the_account_is_named(kube: KubeServer) -> None:
    for rule in kube.rules:
        if "jobs" in rule["resources"]:
            rule["verbs"].remove("create")
    with pytest.raises(ConfigError, match=r"pipeline-runner .* create jobs\.batch .*kubeflow"):
        run(workers({"do": "sleep"}, {"do": "sleep"}, folder=VOLUME))
    assert kube.left == []


def test_manifest_of_the_rights_is_valid() -> None:
    role, binding = yaml.safe_load_all(kube_server.MANIFEST.read_text())
    for document in (role, binding):
        for version in kube_checks.VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "pipeline-runner"}]
