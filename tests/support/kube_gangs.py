"""What the tests of gangs of pods share."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from components.processes import supervisor as supervisor_module
from components.processes.kubernetes import api as api_module
from components.processes.kubernetes import launcher as launcher_module
from components.processes.kubernetes.launcher import KubernetesLauncher
from components.processes.kubernetes.pod_settings import PodSettings
from components.processes.launcher import WorkerSpec
from components.processes.supervisor import ClusterJob, Supervisor
from tests.support import kube_server
from tests.support.kube_server import KubeServer

VOLUME = Path("/mnt/scopeline")
"""Where pods see the folder of a test."""
PODS = PodSettings.model_validate(
    {
        "image": "registry.example.com/scopeline:0.1.0",
        "service_account": "trainer",
        "image_pull_secrets": ["registry"],
        "volume": {"claim": "data", "path": str(VOLUME)},
        "environment": {"GREETING": "hello"},
        "secrets": {"PASSWORD": {"secret": "store", "key": "password"}},
        "resources": {
            "worker": {
                "cpu": "1",
                "cpu_limit": "1500m",
                "memory": "1Gi",
                "memory_limit": "2Gi",
                "accelerator": {"type": "nvidia.com/gpu", "count": 1},
                "node_selector": {"pool": "gpus"},
                "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
            }
        },
    }
)
needs_pods = pytest.mark.skipif(
    kube_server.why_not() is not None, reason=str(kube_server.why_not())
)


@contextmanager
def serving(folder: Path, patch: pytest.MonkeyPatch) -> Iterator[KubeServer]:
    """A Kubernetes in which this process believes to run; its volume is the folder `data`."""
    patch.setattr(supervisor_module, "CLUSTER_GRACE_SECONDS", 0.5)
    patch.setattr(launcher_module, "_POLL_SECONDS", 0.1)
    patch.setattr(api_module, "WATCH_SECONDS", 1)
    (folder / "data").mkdir()
    server = KubeServer(
        folder,
        volumes={"data": folder / "data"},
        secrets={("store", "password"): "secret"},
    )
    patch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    for name, value in server.environment.items():
        patch.setenv(name, value)
    with server:
        yield server


def run(specs: list[WorkerSpec], **options: Any) -> list[str]:
    """Runs a gang to its end."""
    return Supervisor(KubernetesLauncher(PODS, "run/7"), ClusterJob(specs, **options)).run()


def wait_until(condition: Callable[[], bool], seconds: float = 120) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)


@contextmanager
def meanwhile(act: Callable[[], None]) -> Iterator[None]:
    """Does something beside a `with` block; what it raises is raised at the end."""
    errors: list[BaseException] = []

    def catch() -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=catch)
    thread.start()
    yield
    thread.join()
    if errors:
        raise errors[0]
