"""A small Kubernetes for tests: a real HTTP API whose pods are real processes of this machine.

with KubeServer(tmp_path, volumes={"data": tmp_path}) as kube:
    subprocess.run(step, env={**os.environ, **kube.environment})
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import yaml

from tests.support import kube_init
from tests.support.kube_api import NAMESPACE, TOKEN, handler_of
from tests.support.kube_cluster import KubeCluster
from tests.support.kube_pod import Machine, Pod

Object = dict[str, Any]

ROOT = Path(__file__).parents[2]
PREFIX = Path(sys.prefix).resolve()
"""The environment, to which `.venv` of the checkout may be a link."""
MANIFEST = ROOT / "deploy" / "kubernetes" / "trainer-rbac.yaml"
OWNER = "trainer-step-0"
"""The name of the pod that the launcher believes to run in."""


def why_not() -> str | None:
    """Why pods cannot run on this machine; None if they can."""
    try:
        with ThreadPoolExecutor(1) as thread:
            os.close(thread.submit(kube_init.open_network).result())
    except OSError as error:
        return f"pods need networks and mounts of their own: {error}"
    return None


def manifest_rules() -> list[Object]:
    """The rules of the role that the project ships."""
    (role,) = (d for d in yaml.safe_load_all(MANIFEST.read_text()) if d["kind"] == "Role")
    return list(role["rules"])


class KubeServer:
    """The server, with what tests do to it and find in it."""

    def __init__(
        self,
        folder: Path,
        volumes: Mapping[str, Path] | None = None,
        secrets: Mapping[tuple[str, str], str] | None = None,
    ) -> None:
        """Prepares it.

        Args:
          folder: for files of its own; below it pods have their /tmp.
          volumes: folders by the names of claims.
          secrets: values by secret and key.
        """
        self._own = folder / "kubernetes"
        self._own.mkdir()
        image = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.defpath]),
            "PYTHONPATH": str(ROOT),
            "TF_USE_LEGACY_KERAS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        with ThreadPoolExecutor(1) as thread:
            self._network = thread.submit(kube_init.open_network).result()
        self.account = "pipeline-runner"
        """Of the pod that the launcher believes to run in."""
        self.rules = manifest_rules()
        self.used: Counter[tuple[str, str]] = Counter()
        """How often each verb was used on each resource."""
        self.created: list[Object] = []
        # A checkout may itself be below /tmp.
        seen = [path for path in (ROOT, PREFIX) if path.is_relative_to("/tmp")]  # noqa: S108
        machine = Machine(self._own, ROOT, self._network, volumes or {}, secrets or {}, seen, image)
        self.cluster = KubeCluster(machine)
        self.cluster.owners[OWNER] = "8e9d1a2c-owner"
        self._stack = contextlib.ExitStack()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler_of(self))
        self._server.daemon_threads = True
        self.kubeconfig = self._own / "config"
        self.environment = {"KUBECONFIG": str(self.kubeconfig), "HOSTNAME": OWNER}
        """What a step needs to find it."""

    def __enter__(self) -> KubeServer:
        self._write_kubeconfig()
        self._stack.callback(os.close, self._network)
        self._stack.enter_context(self.cluster.running())
        threading.Thread(target=self._server.serve_forever, args=[0.05], daemon=True).start()
        self._stack.callback(self._server.server_close)
        self._stack.callback(self._server.shutdown)
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def left(self) -> list[str]:
        """The names of all objects that there are."""
        with self.cluster.lock:
            names = [name for found in self.cluster.objects.values() for name in found]
            return names + [pod.name for pod in self.cluster.pods]

    def pod(self, kind: str, index: int, seconds: float = 60) -> Pod:
        """The pod of a worker, once it runs."""
        deadline = time.monotonic() + seconds
        while not (pod := self.cluster.active(kind, index)) or not pod.process:
            assert time.monotonic() < deadline, f"no pod of {kind} {index}"
            time.sleep(0.02)
        return pod

    def bodies(self, kind: str) -> list[Object]:
        """All objects of a kind that were created."""
        return [body for body in self.created if body["kind"] == kind]

    def _write_kubeconfig(self) -> None:
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": self.url}}],
            "users": [{"name": "test", "user": {"token": TOKEN}}],
            "contexts": [
                {
                    "name": "test",
                    "context": {"cluster": "test", "user": "test", "namespace": NAMESPACE},
                }
            ],
        }
        self.kubeconfig.write_text(yaml.safe_dump(config))
