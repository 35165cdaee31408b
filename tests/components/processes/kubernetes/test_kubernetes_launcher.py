"""Gangs of pods on a small Kubernetes: to the end, through losses, and what is left afterwards."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from components.processes.failures import WorkerFailedError
from components.processes.kubernetes import objects, pods
from components.processes.kubernetes.launcher import KubernetesLauncher
from components.processes.launcher import Place, WorkerSpec
from components.processes.supervisor import Policy
from tests.support import kube_checks, kube_server, kube_workers
from tests.support.kube_gangs import PODS, VOLUME, meanwhile, needs_pods, run, serving, wait_until
from tests.support.kube_server import KubeServer
from tests.support.kube_workers import spec, starts, workers
from trainer_module.errors import TrainingError
from trainer_module.runtime import PROGRESS_LOGGER

pytestmark = [pytest.mark.timeout(120), needs_pods, pytest.mark.slow]


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeServer]:
    with serving(tmp_path, monkeypatch) as server:
        yield server


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """The volume, as this process sees it."""
    return tmp_path / "data"


def test_gang_runs_to_its_end_and_leaves_nothing(
    kube: KubeServer,
    data: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.INFO, logger=PROGRESS_LOGGER)
    gang = workers({"do": "look_up"}, {"do": "finish_when_found"}, folder=VOLUME)
    gang[0] = WorkerSpec(gang[0].place, gang[0].module, gang[0].payload, {"GRPC_FAIL_FAST": "yes"})
    assert run(gang) == []
    assert kube.left == []
    assert "[worker 0] found 127.0.0.1\n" in capfd.readouterr().err
    (first,), (second,) = starts(data, "worker0"), starts(data, "worker1")
    config = first["payload"]["tf_config"]
    assert config["task"] == {"type": "worker", "index": 0}
    assert second["payload"]["tf_config"]["task"]["index"] == 1
    for port, (start, address) in enumerate(
        zip((first, second), config["cluster"]["worker"], strict=True), 2222
    ):
        (service,) = kube.bodies("Service")
        host = f"{start['host']}.{service['metadata']['name']}.kubeflow.svc"
        assert address == f"{host}:{port}"
        environment = start["environment"]
        assert (environment["GREETING"], environment["PASSWORD"]) == ("hello", "secret")
        assert environment["TF_NUM_INTRAOP_THREADS"] == "2"
        assert environment["TF_NUM_INTEROP_THREADS"] == "3"
        assert host in environment["no_grpc_proxy"]
        assert "SCOPELINE_TASKS" not in environment
    assert first["environment"]["GRPC_FAIL_FAST"] == "yes"
    assert "GRPC_FAIL_FAST" not in second["environment"]


def test_pods_are_given_what_the_settings_say_and_no_more(kube: KubeServer) -> None:
    gang = [
        spec(Place("chief", 0), "finish", VOLUME),
        spec(Place("worker", 0), "sleep", VOLUME),
        spec(Place("worker", 1), "sleep", VOLUME),
    ]
    run(gang, policy=Policy.COORDINATOR)
    chief, worker = kube.bodies("Job")
    assert [chief["spec"]["completions"], worker["spec"]["completions"]] == [1, 2]
    pod = worker["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": "1"},
    }
    assert pod["nodeSelector"] == {"pool": "gpus"}
    assert pod["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert pod["serviceAccountName"] == "trainer"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == {"tmp", "shm", "data"}
    assert mounts["data"] == str(VOLUME)
    assert "secret" not in str([v.get("value") for v in container["env"]])
    template = chief["spec"]["template"]
    assert template["metadata"]["annotations"] == {"sidecar.istio.io/inject": "false"}
    assert "resources" in template["spec"]["containers"][0]
    assert "nodeSelector" not in template["spec"]
    for body in (chief, worker, *kube.bodies("Service")):
        (owner,) = body["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Pod", kube_server.OWNER)
        assert owner["uid"] == kube.cluster.owners[kube_server.OWNER]


def test_pods_have_the_account_of_their_launcher(kube: KubeServer) -> None:
    kube.account = "default-editor"
    launcher = KubernetesLauncher(PODS.model_copy(update={"service_account": None}), "run/7")
    launcher.allocate([Place("worker", 0)])
    launcher.start(spec(Place("worker", 0), "sleep", VOLUME))
    launcher.stop_all()
    (job,) = kube.bodies("Job")
    assert job["spec"]["template"]["spec"]["serviceAccountName"] == "default-editor"


def test_worker_writes_to_its_own_folder_alone(kube: KubeServer) -> None:
    gang = workers({"do": "write_outside"}, {"do": "sleep"}, folder=VOLUME)
    with pytest.raises(TrainingError) as caught:
        run(gang)
    # Where the checkout, or its environment, is below /tmp, pods see that as well.
    roots = [path for path in (kube_server.ROOT, kube_server.PREFIX) if path.parts[1] == "tmp"]
    names = sorted({"mine", *(path.parts[2] for path in roots)})
    assert str(caught.value) == f"Read-only file system: /tmp holds {names}"


def test_worker_that_raises_fails_the_training_with_its_last_words(
    kube: KubeServer, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(WorkerFailedError) as caught:
        run(workers({"do": "sleep"}, {"do": "fail"}, folder=VOLUME))
    assert str(caught.value) == "worker 1: ZeroDivisionError: float division by zero"
    assert caught.value.frames[-1][0] == kube_workers.__file__
    assert caught.value.log_tail[0] == "about to divide"
    assert "The last lines of worker 1:\nabout to divide\nTraceback" in caplog.text
    assert kube.left == []


def test_nothing_is_lost_or_repeated_when_connections_break(
    kube: KubeServer, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger=PROGRESS_LOGGER)
    kube.cluster.cut_logs += [3, 0, 5, 60, 1]
    gang = workers(
        {"do": "count", "lines": 100, "pause": 0.02},
        {"do": "count", "lines": 1, "pause": 0},
        folder=VOLUME,
    )
    run(gang)
    assert kube.cluster.cut_logs == []
    said = [line for line in capfd.readouterr().err.splitlines() if line.startswith("[worker 0]")]
    expected = [text for i in range(100) for text in (f"[worker 0] line {i}", "[worker 0] =====>")]
    assert said == expected
    steps = [r.done for r in caplog.records if r.name == PROGRESS_LOGGER]  # type: ignore[attr-defined]
    assert steps == [None, *range(1, 101)]  # The processes start, and count.


def test_lost_worker_is_replaced_while_the_chief_goes_on(kube: KubeServer, data: Path) -> None:
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
    assert len(starts(data, "chief0")) == len(starts(data, "worker0")) == 1
    assert kube.left == []


def test_pod_that_is_deleted_restarts_the_gang(kube: KubeServer, data: Path) -> None:
    gang = workers({"do": "sleep_at_first"}, {"do": "sleep_at_first"}, folder=VOLUME)

    def delete() -> None:
        wait_until(lambda: kube.used["get", "pods/log"] == 2)  # The launcher has seen both.
        kube.cluster.remove("pods", kube.pod("worker", 1).name)

    with meanwhile(delete):
        (restart,) = run(gang)
    assert restart.startswith("worker 1 was killed by SIGKILL")


def test_rights_are_those_of_the_manifest(
    kube: KubeServer, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that a launcher ever does: none of its rights is missing, and none too many."""
    monkeypatch.setattr(pods, "_EXTEND_SECONDS", 0.5)
    monkeypatch.setattr(objects, "LEASE_SECONDS", 4)
    monkeypatch.setattr(pods, "LEASE_SECONDS", 4)
    kube.cluster.backoff = 1.5
    gang = [
        spec(Place("chief", 0), "wait_for", VOLUME, waits_for=["worker0"]),
        spec(Place("worker", 0), "sleep", VOLUME),
    ]

    def kill_late() -> None:
        wait_until(lambda: bool(starts(data, "chief0")))
        time.sleep(4.5)  # Longer than Jobs live unless their launcher extends that.
        kube.pod("worker", 0).kill()

    with meanwhile(kill_late):
        assert run(gang, policy=Policy.COORDINATOR) == ["worker 0 was killed by SIGKILL"]
    allowed = {
        (verb, resource + (f".{rule['apiGroups'][0]}" if rule["apiGroups"][0] else ""))
        for rule in kube.rules
        for verb in rule["verbs"]
        for resource in rule["resources"]
    }
    assert set(kube.used) == allowed


def test_manifest_is_one_that_kubernetes_takes() -> None:
    role, binding = yaml.safe_load_all(kube_server.MANIFEST.read_text())
    for document in (role, binding):
        for version in kube_checks.VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "pipeline-runner"}]
