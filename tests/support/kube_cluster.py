"""What a cluster does with Jobs and Services: pods for every index, and an end with their owner."""

from __future__ import annotations

import contextlib
import os
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from tests.support.kube_pod import Machine, Pod

Object = dict[str, Any]

GRACE_SECONDS = 0.2
_TICK_SECONDS = 0.02


class Change(NamedTuple):
    """A pod that was added, changed or deleted."""

    version: int
    kind: str
    pod: Object


def _without_version(pod: Object) -> Object:
    metadata = {k: v for k, v in pod["metadata"].items() if k != "resourceVersion"}
    return {**pod, "metadata": metadata}


class KubeCluster:
    """Keeps objects, and does as the Job controller, the kubelet and the garbage collector do."""

    def __init__(self, machine: Machine) -> None:
        """Begins without objects, on a machine where its pods will run."""
        self.lock = threading.RLock()
        self.objects: dict[str, dict[str, Object]] = {"services": {}, "jobs.batch": {}}
        self.pods: list[Pod] = []
        self.owners: dict[str, str] = {}
        """Unique ids, by name, of pods that own others."""
        self.backoff = 10.0
        """Seconds until a pod that failed is replaced; doubled each time."""
        self.doomed: set[str] = set()
        """Names of Jobs that get no pods any more."""
        self.changes: list[Change] = []
        """Of pods, oldest first."""
        self.version = 1
        """The resource version of the last change."""
        self._described: dict[str, Object] = {}
        self._machine = machine
        self._failures: dict[str, list[float]] = {}
        self._known_hosts = ""
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Does its work in a `with` block; kills what is left at its end."""
        self._write_hosts()
        self._thread.start()
        try:
            yield
        finally:
            self._stopped.set()
            self._thread.join()
            for pod in self.pods:
                pod.kill()
            for pod in self.pods:
                if pod.process:
                    pod.process.wait()

    def add(self, resource: str, body: Object) -> None:
        """Takes in a new object."""
        with self.lock:
            self.objects[resource][body["metadata"]["name"]] = body

    def remove(self, resource: str, name: str) -> bool:
        """Deletes an object and what belongs to it; whether it was there."""
        with self.lock:
            if resource == "pods":
                found = [pod for pod in self.pods if pod.name == name]
            else:
                gone = self.objects[resource].pop(name, None)
                if gone is None:
                    return False
                found = [pod for pod in self.pods if pod.job is gone]
                if not found:
                    return True
            for pod in found:
                pod.deleted = pod.deleted or time.monotonic()
            return bool(found)

    def record(self) -> list[Object]:
        """Gives a version to what has changed since the last call; returns the pods as they are."""
        with self.lock:
            now = {pod.uid: pod.describe() for pod in self.pods}
            for uid in [uid for uid in self._described if uid not in now]:
                self._add_change("DELETED", self._described.pop(uid))
            for uid, pod in now.items():
                before = self._described.get(uid)
                if before is None or _without_version(before) != pod:
                    self._described[uid] = self._add_change("MODIFIED" if before else "ADDED", pod)
            return [self._described[uid] for uid in now]

    def _add_change(self, kind: str, pod: Object) -> Object:
        self.version += 1
        metadata = {**pod["metadata"], "resourceVersion": str(self.version)}
        versioned = {**pod, "metadata": metadata}
        self.changes.append(Change(self.version, kind, versioned))
        return versioned

    def active(self, kind: str, index: int) -> Pod | None:
        """The pod that has a place at the moment."""
        with self.lock:
            found = [p for p in self.pods if (p.kind, p.index) == (kind, index) and p.is_active]
            return found[-1] if found else None

    def _run(self) -> None:
        while not self._stopped.wait(_TICK_SECONDS):
            with self.lock:
                for pod in list(self.pods):
                    self._care_for(pod)
                for job in list(self.objects["jobs.batch"].values()):
                    self._reconcile(job)
                self.record()
                self._write_hosts()

    def _care_for(self, pod: Pod) -> None:
        was_active = pod.is_active
        pod.observe()
        if was_active and not pod.is_active and pod.code:
            self._failures.setdefault(pod.job["metadata"]["name"], []).append(time.monotonic())
        if pod.deleted is not None:
            if time.monotonic() - pod.deleted > GRACE_SECONDS:
                pod.kill()
            if pod.process is None or not pod.is_active:
                self.pods.remove(pod)

    def _reconcile(self, job: Object) -> None:
        name, spec = job["metadata"]["name"], job["spec"]
        failures = self._failures.get(name, [])
        if len(failures) > spec["backoffLimit"]:
            self.doomed.add(name)
            for pod in self.pods:
                if pod.job is job and pod.is_active:
                    pod.deleted = pod.deleted or time.monotonic()
            return
        if name in self.doomed:
            return
        wait = self.backoff * 2 ** (len(failures) - 1) if failures else 0
        for index in range(spec["completions"]):
            mine = [pod for pod in self.pods if pod.job is job and pod.index == index]
            if any(pod.is_active or pod.code == 0 for pod in mine):
                continue
            if not failures or time.monotonic() - failures[-1] >= wait:
                self._make_pod(job, index)

    def _make_pod(self, job: Object, index: int) -> None:
        kind = job["metadata"]["labels"]["scopeline/task"]
        name = f"{job['metadata']['name']}-{index}-{secrets.token_hex(3)}"
        pod = Pod(name, kind, index, job)
        self.pods.append(pod)
        pod.start(self._machine)

    def _write_hosts(self) -> None:
        """Gives names to the running pods of Services; the file stays the same for all mounts."""
        lines = ["127.0.0.1 localhost"]
        for pod in self.pods:
            has_service = pod.spec["subdomain"] in self.objects["services"]
            if has_service and pod.process and pod.is_active:
                lines.append(f"127.0.0.1 {pod.host}")
        text = "\n".join(lines) + "\n"
        if text == self._known_hosts:
            return
        self._known_hosts = text
        descriptor = os.open(self._machine.hosts, os.O_WRONLY | os.O_CREAT, 0o644)
        with contextlib.closing(os.fdopen(descriptor, "wb", buffering=0)) as file:
            file.write(text.encode())
            file.truncate()
