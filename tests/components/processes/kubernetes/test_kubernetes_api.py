"""What the API of Kubernetes answers: nothing for a while, not now, or no."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from components.processes.kubernetes import api as api_module
from components.processes.kubernetes.api import KubernetesApi, ResourceKind
from components.processes.kubernetes.launcher import KubernetesLauncher
from components.processes.kubernetes.objects import Gang, make_service
from components.processes.launcher import Place
from tests.support.kube_gangs import PODS, VOLUME, meanwhile, needs_pods, run, serving, wait_until
from tests.support.kube_server import KubeServer
from tests.support.kube_workers import spec, starts, workers
from trainer_module.errors import ConfigError, TrainingError

pytestmark = [pytest.mark.timeout(120), needs_pods, pytest.mark.slow]
CONFLICT = (
    'Operation cannot be fulfilled on resourcequotas "compute": the object has been modified; '
    "please apply your changes to the latest version and try again"
)


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeServer]:
    with serving(tmp_path, monkeypatch) as server:
        yield server


def test_api_that_does_not_answer_for_a_while_is_asked_again(
    kube: KubeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    gang = workers({"do": "count", "lines": 30, "pause": 0.1}, {"do": "finish"}, folder=VOLUME)

    def refuse() -> None:
        wait_until(lambda: bool(starts(tmp_path / "data", "worker0")))
        time.sleep(0.5)
        kube.refuse(2.5)

    with meanwhile(refuse):
        assert run(gang) == []
    assert "The Kubernetes API does not respond" in caplog.text
    assert kube.left == []


def test_api_that_does_not_answer_at_all(kube: KubeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "RETRY_SECONDS", 0.5)
    kube.refuse(60)
    with pytest.raises(TrainingError) as caught:
        run(workers({"do": "sleep"}, {"do": "sleep"}, folder=VOLUME))
    assert str(caught.value).startswith(
        f"the Kubernetes API at {kube.url} has not responded for 0.5 s ("
    )


def test_object_that_a_quota_refuses_for_a_moment_is_created_then(
    kube: KubeServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(api_module, "_PAUSE_SECONDS", 0.01)
    kube.cluster.quota_conflicts += [CONFLICT, CONFLICT]
    service = make_service(Gang.of("key", "kubeflow", None))
    KubernetesApi().create(ResourceKind.SERVICE, service)
    assert [body["metadata"]["name"] for body in kube.bodies("Service")] == [
        service["metadata"]["name"]
    ]
    assert f"HTTP 409: {CONFLICT}" in caplog.text


def test_object_that_exists_is_what_an_earlier_call_created(kube: KubeServer) -> None:
    service = make_service(Gang.of("key", "kubeflow", None))
    for _ in range(2):
        KubernetesApi().create(ResourceKind.SERVICE, service)
    assert len(kube.bodies("Service")) == 1


@pytest.mark.parametrize(
    ("verb", "resource", "message"),
    [
        ("create", "jobs", "create jobs.batch"),
        ("list", "pods", "list pods"),
        ("watch", "pods", "watch pods"),
        ("get", "pods/log", "get pods/log"),
    ],
)
def test_account_without_a_right(kube: KubeServer, verb: str, resource: str, message: str) -> None:
    for rule in kube.rules:
        if resource in rule["resources"]:
            rule["verbs"].remove(verb)
    with pytest.raises(ConfigError) as caught:
        run(workers({"do": "sleep"}, {"do": "sleep"}, folder=VOLUME))
    assert str(caught.value) == (
        f"system:serviceaccount:kubeflow:pipeline-runner may not {message} in namespace kubeflow; "
        "a role with the rights that the trainer needs is in deploy/kubernetes/trainer-rbac.yaml; "
        "apply this file with "
        "`kubectl apply --namespace kubeflow --filename deploy/kubernetes/trainer-rbac.yaml`."
    )
    assert kube.left == []


def test_account_that_is_not_the_subject_of_the_manifest(kube: KubeServer) -> None:
    kube.account = "default-editor"
    kube.rules.clear()
    with pytest.raises(ConfigError) as caught:
        KubernetesLauncher(PODS, "run/7").allocate([Place("worker", 0)])
    assert str(caught.value) == (
        "system:serviceaccount:kubeflow:default-editor may not list jobs.batch in namespace "
        "kubeflow; a role with the rights that the trainer needs is in "
        "deploy/kubernetes/trainer-rbac.yaml; apply this file with "
        "`kubectl apply --namespace kubeflow --filename deploy/kubernetes/trainer-rbac.yaml`; "
        "first make default-editor the subject in this file."
    )


def test_kubernetes_refuses_an_object(kube: KubeServer) -> None:
    pods = PODS.model_copy(update={"image_pull_secrets": [7]})
    launcher = KubernetesLauncher(pods, "run/7")
    launcher.allocate([Place("worker", 0)])
    with pytest.raises(ConfigError, match=r"refuses to create jobs\.batch in namespace kubeflow"):
        launcher.start(spec(Place("worker", 0), "sleep", VOLUME))
    launcher.stop_all()
    assert kube.left == []


def test_no_cluster_at_all(kube: KubeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/no/where")
    with pytest.raises(ConfigError, match=r"does not run in a cluster, and KUBECONFIG does not"):
        KubernetesLauncher(PODS, "run/7")
