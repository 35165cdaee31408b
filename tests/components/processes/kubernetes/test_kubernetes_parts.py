"""The state of a pod, its log in pieces, and the Job of a gang."""

from __future__ import annotations

import random
from typing import Any

import pytest

from components.processes.kubernetes.objects import (
    Gang,
    make_job,
    training_key,
)
from components.processes.kubernetes.pod import MARK, enter_pod, pack, split_line, unpack
from components.processes.kubernetes.pod_log import LogWindow
from components.processes.kubernetes.pod_settings import PodSettings
from components.processes.kubernetes.pods import PodState
from components.processes.launcher import Place, WorkerEvent, WorkerSpec
from tests.support import kube_checks
from tests.support.kube_gangs import PODS, VOLUME
from trainer_module.errors import ConfigError

Object = dict[str, Any]


def pod(phase: str, state: Object | None = None, **status: Any) -> PodState:
    containers = [{"name": "task", "state": state}] if state else []
    return PodState.of(
        {
            "metadata": {
                "name": "p",
                "uid": "1",
                "labels": {"scopeline/task": "worker"},
                "annotations": {"batch.kubernetes.io/job-completion-index": "3"},
            },
            "spec": {"containers": [{"name": "task"}]},
            "status": {"phase": phase, "containerStatuses": containers, **status},
        }
    )


def ended(code: int, reason: str = "Error", message: str = "") -> Object:
    return {"terminated": {"exitCode": code, "reason": reason, "message": message}}


DISRUPTED = [
    {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": "preempting to accommodate a higher priority pod",
    }
]


@pytest.mark.parametrize(
    ("state", "status", "remark"),
    [
        (pod("Running", {"running": {}}), None, ""),
        (pod("Succeeded", ended(0, "Completed")), 0, ""),
        (pod("Failed", ended(1)), 1, ""),
        (pod("Failed", ended(137)), -9, ""),
        (pod("Failed", ended(168)), 168, ""),
        (
            pod("Failed", ended(137, "OOMKilled")),
            -9,
            "out of memory (OOMKilled; the container has no memory limit of its own)",
        ),
        (
            pod("Failed", ended(143), conditions=DISRUPTED),
            -9,
            "pod p was lost (PreemptionByScheduler: preempting to accommodate a higher priority "
            "pod)",
        ),
        (pod("Failed"), -9, "pod p ended before its container began"),
        (
            pod("Pending", {"waiting": {"reason": "ImagePullBackOff", "message": "back-off"}}),
            None,
            "pod p: ImagePullBackOff: back-off",
        ),
    ],
)
def test_state_of_a_pod(state: PodState, status: int | None, remark: str) -> None:
    assert (state.status, state.remark) == (status, remark)
    assert (state.kind, state.index) == ("worker", 3)


def test_image_that_cannot_be_pulled_is_not_waited_for() -> None:
    def waiting(reason: str) -> PodState:
        return pod("Pending", {"waiting": {"reason": reason}})

    assert waiting("InvalidImageName").is_hopeless
    assert waiting("ErrImagePull").is_stuck
    assert not waiting("ErrImagePull").is_hopeless
    assert not waiting("ContainerCreating").is_stuck


@pytest.mark.parametrize("seed", range(3))
def test_log_that_comes_in_pieces_is_joined(seed: int) -> None:
    """Times may be the same, or out of order by a little; the API gives whole seconds."""
    generator = random.Random(seed)  # noqa: S311
    seconds = sorted(generator.choices(range(1_000, 1_012), k=60))
    for index in range(1, 60):
        if generator.random() < 0.2 and seconds[index] - seconds[index - 1] <= 1:
            seconds[index - 1 : index + 1] = seconds[index], seconds[index - 1]
    log = [(second, f"{second} {generator.choice('abc')}") for second in seconds]
    window = LogWindow()
    read: list[str] = []
    while len(read) < len(log):
        window.reconnect()
        since = window.since or "1970-01-01T00:00:00Z"
        first = int(since[14:16]) * 60 + int(since[17:19])  # All are within the first hour.
        again = [item for item in log if item[0] >= first]
        whole = len(log) - len(read) <= 5
        left = len(again) if whole else generator.randint(0, len(again))
        read += [line for second, line in again[:left] if window.is_new(second, line)]
    assert read == [line for _, line in log]


def test_event_is_split_from_a_log_line() -> None:
    event = WorkerEvent("progress", {"done": 1})
    text = '{"kind": "progress", "values": {"done": 1}}'
    assert split_line(f"{MARK}{text}") == (None, event)
    assert split_line(f"====>{MARK}{text}") == ("====>", event)
    assert split_line("a text") == ("a text", None)
    assert split_line(f"{MARK}{text[:9]}a text") == (f"{MARK}{text[:9]}a text", None)


def test_workers_are_packed_into_one_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = {"worker": ["a.svc:1", "b.svc:2"]}
    specs = [
        WorkerSpec(
            Place("worker", i),
            "m",
            {"i": i, "tf_config": {"cluster": cluster}},
            {"E": str(i)},
        )
        for i in range(2)
    ]
    assert unpack(pack(specs), 1) == (dict(specs[1].payload), {"E": "1"})
    environ = {"SCOPELINE_TASKS": pack(specs), "JOB_COMPLETION_INDEX": "1", "no_proxy": ".local"}
    assert enter_pod(environ) == specs[1].payload
    assert environ["E"] == "1"
    assert environ["no_grpc_proxy"] == ".local,a.svc,b.svc"
    assert int(environ["TF_NUM_INTEROP_THREADS"]) >= 3
    assert "SCOPELINE_TASKS" not in environ


def test_payloads_larger_than_a_variable_are_refused() -> None:
    noise = random.Random(1).randbytes(80_000).hex()  # noqa: S311
    with pytest.raises(ConfigError, match=r"payloads of 1 workers take \d+,"):
        pack([WorkerSpec(Place("worker", 0), "m", {"noise": noise})])


def test_longest_name_is_one_that_kubernetes_takes() -> None:
    gang = Gang.of(training_key("/a/folder"), "n" * 63, None)
    addresses = gang.addresses([Place("worker", i) for i in range(10_000)])["worker"]
    host, port = addresses[-1].split(":")
    assert len(host.partition(".")[0]) <= 63
    assert len(host) <= 253
    assert 1024 < int(port) < 65_536
    assert Gang.of(training_key("/a/folder"), "n", None).name != gang.name


def test_pods_are_given_what_the_settings_say_and_no_rights() -> None:
    gang = Gang.of("key", "n", None)
    specs = [WorkerSpec(Place("worker", index), "m") for index in range(2)]
    job = make_job(gang, specs, PODS, 2)
    pod_spec = job["spec"]["template"]["spec"]
    (container,) = pod_spec["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "1", "memory": "1Gi"},
        "limits": {"cpu": "1500m", "memory": "2Gi", "nvidia.com/gpu": "1"},
    }
    assert pod_spec["nodeSelector"] == {"pool": "gpus"}
    assert pod_spec["tolerations"] == [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}]
    assert pod_spec["serviceAccountName"] == "trainer"
    assert pod_spec["imagePullSecrets"] == [{"name": "registry"}]
    assert pod_spec["automountServiceAccountToken"] is False
    assert pod_spec["securityContext"]["runAsNonRoot"] is True
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounts) == {"tmp", "shm", "data"}
    assert mounts["data"] == str(VOLUME)
    assert kube_checks.problems(job) == []


@pytest.mark.parametrize(("cpu", "threads"), [("2", 2), ("0.5", 1), ("1500m", 2), ("4000m", 4)])
def test_a_limit_of_cores_is_one_of_threads(cpu: str, threads: int) -> None:
    pods = PodSettings(image="i:1", resources={"ps": {"cpu_limit": cpu}})
    job = make_job(Gang.of("key", "n", None), [WorkerSpec(Place("ps", 0), "m")], pods, 2)
    (container,) = job["spec"]["template"]["spec"]["containers"]
    environment = {variable["name"]: variable["value"] for variable in container["env"]}
    assert environment["OMP_NUM_THREADS"] == str(threads)
