"""The pods of a gang are watched: nothing is missed when a watch breaks or its version is old."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from components.processes.kubernetes import api as api_module
from components.processes.kubernetes import pods
from components.processes.kubernetes.api import KubernetesApi, ResourceKind, WatchEndedError
from tests.support.kube_gangs import VOLUME, meanwhile, needs_pods, run, serving, wait_until
from tests.support.kube_server import KubeServer
from tests.support.kube_workers import starts, workers

pytestmark = [pytest.mark.timeout(120), needs_pods, pytest.mark.slow]


@pytest.fixture
def kube(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubeServer]:
    with serving(tmp_path, monkeypatch) as server:
        monkeypatch.setattr(pods, "_PAUSE_SECONDS", 0.05)
        yield server


def test_pods_are_not_listed_while_they_are_watched(
    kube: KubeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "WATCH_SECONDS", 30)
    listed: list[int] = []

    def kill() -> None:
        wait_until(lambda: len(starts(tmp_path / "data", "worker1")) == 1)
        listed.append(kube.used["list", "pods"])
        kube.pod("worker", 1).kill()

    gang = workers({"do": "sleep_at_first"}, {"do": "sleep_at_first"}, folder=VOLUME)
    with meanwhile(kill):
        assert run(gang) == ["worker 1 was killed by SIGKILL"]
    # Once for what an earlier attempt has left, and once for what the watch begins with.
    assert listed == [2]
    assert kube.left == []


@pytest.mark.parametrize("changes", [0, 1, 3])
def test_no_change_is_missed_when_watches_break(
    kube: KubeServer, tmp_path: Path, changes: int
) -> None:
    kube.cluster.cut_watches += [changes] * 20
    gang = workers({"do": "sleep_at_first"}, {"do": "sleep_at_first"}, folder=VOLUME)

    def kill() -> None:
        wait_until(lambda: bool(starts(tmp_path / "data", "worker1")))
        kube.pod("worker", 1).kill()

    with meanwhile(kill):
        assert run(gang) == ["worker 1 was killed by SIGKILL"]
    assert len(kube.cluster.cut_watches) < 20


def test_pods_are_listed_again_when_the_version_is_too_old(
    kube: KubeServer, tmp_path: Path
) -> None:
    gang = workers({"do": "sleep_at_first"}, {"do": "sleep_at_first"}, folder=VOLUME)

    def kill() -> None:
        wait_until(lambda: bool(starts(tmp_path / "data", "worker1")))
        # At once: the watch can be given neither that the pod failed nor what came before.
        with kube.cluster.lock:
            pod = kube.pod("worker", 1)
            pod.kill()
            pod.process.wait()
            wait_until(lambda: pod.log_ended)
            pod.observe()
            kube.cluster.forget_changes()

    with meanwhile(kill):
        assert run(gang) == ["worker 1 was killed by SIGKILL"]


def test_version_that_is_too_old_ends_a_watch(kube: KubeServer) -> None:
    api = KubernetesApi()
    _, version = api.list(ResourceKind.POD, "scopeline/gang=none")
    assert list(api.watch_pods("scopeline/gang=none", version)) == []
    kube.cluster.version = kube.cluster.oldest_version = int(version) + 5
    with pytest.raises(WatchEndedError, match="410: Expired: too old resource version"):
        list(api.watch_pods("scopeline/gang=none", version))
