"""What keeps gangs of pods from running, and what is left of them when their launcher dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from components.processes import supervisor as supervisor_module
from components.processes.failures import StartTimeoutError, WorkerFailedError
from components.processes.kubernetes import objects, pods
from components.processes.kubernetes.launcher import KubernetesLauncher
from components.processes.launcher import Place, WorkerSpec
from tests.support import kube_server
from tests.support.kube_gangs import PODS, VOLUME, meanwhile, needs_pods, run, serving, wait_until
from tests.support.kube_server import KubeServer
from tests.support.kube_workers import starts, workers
from trainer_module.errors import ConfigError

pytestmark = [pytest.mark.timeout(120), needs_pods, pytest.mark.slow]
START_SECONDS = 6
_STEP = """
import logging
from tests.support.kube_gangs import VOLUME, run
from tests.support.kube_workers import workers
from components.processes.kubernetes.launcher import exits_on_sigterm
logging.basicConfig()
with exits_on_sigterm():
    run(workers({"do": "sleep"}, {"do": "sleep"}, folder=VOLUME))
"""


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeServer]:
    with serving(tmp_path, monkeypatch) as server:
        yield server


@pytest.fixture
def step(kube: KubeServer, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that trains in two pods for a minute; both have begun."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", _STEP], env=environment)
    wait_until(lambda: bool(starts(tmp_path / "data", "worker0")))
    wait_until(lambda: bool(starts(tmp_path / "data", "worker1")))
    yield process
    process.kill()
    process.wait()


def pending(reason: str, message: str) -> dict[str, Any]:
    """The status of a pod whose container cannot start."""
    waiting = {"waiting": {"reason": reason, "message": message}}
    return {"containerStatuses": [{"name": "task", "state": waiting}]}


def unschedulable(message: str) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    return {"conditions": [{**condition, "message": message}]}


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_step_that_is_told_to_end_deletes_everything(
    kube: KubeServer, step: subprocess.Popen[bytes], how: signal.Signals
) -> None:
    assert len(kube.left) == 4
    step.send_signal(how)
    assert step.wait(timeout=20) == {signal.SIGTERM: 143, signal.SIGINT: -signal.SIGINT}[how]
    assert kube.left == []


def test_everything_goes_with_the_pod_of_the_step(
    kube: KubeServer, step: subprocess.Popen[bytes]
) -> None:
    step.kill()
    step.wait()
    time.sleep(0.2)
    assert len(kube.left) == 4
    kube.cluster.end_owner(kube_server.OWNER)
    wait_until(lambda: kube.left == [], seconds=5)


def test_process_outside_of_the_cluster_has_no_owner_to_name(
    kube: KubeServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("HOSTNAME", "a-laptop")
    launcher = KubernetesLauncher(PODS, "run/7")
    launcher.allocate([Place("worker", 0)])
    (service,) = kube.bodies("Service")
    assert "ownerReferences" not in service["metadata"]
    assert "If this process is killed, its Jobs end within 7 minutes" in caplog.text
    launcher.stop_all()


def test_jobs_end_some_time_after_their_launcher(
    kube: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "LEASE_SECONDS", 2)
    launcher = KubernetesLauncher(PODS, "run/7")
    (gang,) = workers({"do": "sleep"}, folder=VOLUME)
    cluster = launcher.allocate([gang.place])
    place = {"cluster": cluster, "task": {"type": "worker", "index": 0}}
    payload = {**gang.payload, "tf_config": place}
    worker = launcher.start(WorkerSpec(gang.place, gang.module, payload))
    wait_until(lambda: bool(starts(tmp_path / "data", "worker0")))
    assert worker.poll() is None
    wait_until(lambda: worker.poll() is not None, seconds=10)
    assert [name for name in kube.left if "worker-0" in name] == []
    launcher.stop_all()


def test_next_attempt_deletes_what_the_last_one_left(
    kube: KubeServer,
    step: subprocess.Popen[bytes],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    step.kill()
    step.wait()
    (left,) = kube.bodies("Job")
    processes = [kube.pod("worker", index).process for index in (0, 1)]
    other = KubernetesLauncher(PODS, "run/8")
    other.allocate([Place("worker", 0)])
    assert len(kube.left) == 5, "another training is left alone"
    other.stop_all()
    launcher = KubernetesLauncher(PODS, "run/7")
    launcher.allocate([Place("worker", 0), Place("worker", 1)])
    assert all(process and process.poll() is not None for process in processes)
    assert [name for name in kube.left if "worker" in name] == []
    assert f"Jobs of an earlier attempt: {left['metadata']['name']}" in caplog.text
    launcher.stop_all()


def test_pod_that_finds_no_node_is_named(kube: KubeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "BEGIN_SECONDS", 3.0)
    kube.cluster.holds["worker", 1] = unschedulable("0/3 nodes: insufficient nvidia.com/gpu.")
    with pytest.raises(StartTimeoutError) as caught:
        run(workers({"do": "look_up"}, {"do": "sleep"}, folder=VOLUME), start_timeout=1)
    job = kube.bodies("Job")[0]["metadata"]["name"]
    named = f"not ready within 3 s: worker 1 (not running yet; pod {job}-1-"
    assert str(caught.value).startswith(named)
    assert str(caught.value).endswith(
        ": Unschedulable: 0/3 nodes: insufficient nvidia.com/gpu.); free resources for them, or "
        "request less (smaller resources, fewer workers)."
    )
    assert kube.left == []


def test_time_to_start_is_that_of_running_pods(kube: KubeServer, tmp_path: Path) -> None:
    """A worker may wait long for a node, and the others for it."""
    kube.cluster.holds["worker", 1] = unschedulable("0/3 nodes: a node is being added.")

    def find_node() -> None:
        wait_until(lambda: bool(starts(tmp_path / "data", "worker0")))
        time.sleep(START_SECONDS + 1)
        del kube.cluster.holds["worker", 1]

    with meanwhile(find_node):
        gang = workers({"do": "look_up"}, {"do": "finish_when_found"}, folder=VOLUME)
        assert run(gang, start_timeout=START_SECONDS) == []


def test_pod_that_runs_but_is_not_ready(kube: KubeServer) -> None:
    gang = workers({"do": "sleep"}, {"do": "keep_quiet"}, folder=VOLUME)
    with pytest.raises(StartTimeoutError) as caught:
        run(gang, start_timeout=START_SECONDS)
    assert str(caught.value).startswith(
        f"not ready within {START_SECONDS} s: worker 1 (running, and waiting for other workers);"
    )


@pytest.mark.parametrize("status", [200, 500])
def test_training_whose_log_is_lost_is_done_all_the_same(
    kube: KubeServer, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(pods, "_LOG_SECONDS", 1.0)
    kube.cluster.lost_logs = status
    assert run(workers({"do": "finish"}, {"do": "finish"}, folder=VOLUME)) == []


def test_error_whose_log_is_lost_is_still_an_error(kube: KubeServer) -> None:
    kube.cluster.lost_logs = 200
    with pytest.raises(WorkerFailedError) as caught:
        run(workers({"do": "sleep"}, {"do": "fail"}, folder=VOLUME))
    assert str(caught.value) == "worker 1 ended early, with exit status 1"


def test_image_that_cannot_be_pulled_is_not_waited_for(kube: KubeServer) -> None:
    message = "couldn't parse image name"
    kube.cluster.holds["worker", 0] = pending("InvalidImageName", message)
    began = time.monotonic()
    with pytest.raises(ConfigError) as caught:
        run(workers({"do": "sleep"}, {"do": "sleep"}, folder=VOLUME))
    assert time.monotonic() - began < 10
    assert str(caught.value).startswith("worker 0 cannot start: pod scopeline-")
    assert str(caught.value).endswith(f"InvalidImageName: {message}")


def test_memory_that_was_not_enough_is_said(kube: KubeServer, tmp_path: Path) -> None:
    gang = workers({"do": "sleep"}, {"do": "sleep"}, folder=VOLUME)

    def kill() -> None:
        wait_until(lambda: bool(starts(tmp_path / "data", "worker1")))
        pod = kube.pod("worker", 1)
        pod.reason = "OOMKilled"
        pod.kill()

    with meanwhile(kill), pytest.raises(WorkerFailedError) as caught:
        run(gang, retries=0)
    assert str(caught.value) == (
        "worker 1 was killed by SIGKILL: out of memory (OOMKilled; its limit is 2Gi)"
    )
