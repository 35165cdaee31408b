"""A pipeline on Kubeflow whose Trainer starts its workers as pods, one of which is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.support.kube_gangs import needs_pods
from tests.support.kube_server import KubeServer
from tests.support.kubeflow_cluster import (
    PASSWORD,
    ROOT,
    Cluster,
    kubeflow_cluster,
    states,
    summary,
)
from tests.support.project import SMALL

pytestmark = [needs_pods, pytest.mark.slow]
EPOCHS = 6


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kubeflow_cluster(tmp_path_factory.mktemp("workers")) as cluster:
        yield cluster


def kill_worker_once(
    cluster: Cluster, kube: KubeServer, killed: list[str], stop: threading.Event
) -> None:
    """Kills the second worker as soon as there is a backup to go on from."""
    trainer = cluster.volume / "output" / "digits" / "pipeline_root" / "Trainer"
    while not stop.wait(0.1):
        if any(trainer.glob("backups/*/*")):
            pod = kube.pod("worker", 1)
            pod.kill()
            killed.append(pod.name)
            return


def test_lost_worker_pod_is_restarted_and_the_model_is_pushed(cluster: Cluster) -> None:
    compiled = cluster.compile(
        ROOT / "configs" / "digits.yaml",
        "train.strategy=multi_worker_mirrored",
        "train.cluster={workers: 2, launcher: kubernetes}",
        f"train.epochs={EPOCHS}",
        SMALL,
        "evaluate.thresholds={accuracy: {min: 0.1}}",
    )
    killed: list[str] = []
    stop = threading.Event()
    with KubeServer(
        cluster.volume.parent,
        volumes={"scopeline": cluster.volume},
        secrets={("meta", "password"): PASSWORD},
    ) as kube:
        killer = threading.Thread(target=kill_worker_once, args=(cluster, kube, killed, stop))
        killer.start()
        try:
            run = cluster.executor(compiled, environment=kube.environment).run()
        finally:
            stop.set()
            killer.join()
        left = kube.left
    assert run.state == "SUCCEEDED", run.report()
    assert killed
    ended = summary(run)
    assert ended.status == "pushed"
    assert ended.training["strategy"] == "multi_worker_mirrored"
    assert ended.training["workers"] == 2
    assert ended.training["resumed_at_step"] > 0
    assert any("worker 1 was killed by SIGKILL" in what for what in ended.training["restarts"])
    assert states(run)["Trainer"] == "ran"
    assert not left, "everything that was made is deleted"
