"""A pod whose one container is a process of this machine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support import kube_init

Object = dict[str, Any]


def stamp() -> str:
    """The time as logs have it."""
    nanoseconds = time.time_ns()
    second = datetime.fromtimestamp(nanoseconds // 10**9, UTC)
    return f"{second:%Y-%m-%dT%H:%M:%S}.{nanoseconds % 10**9:09d}Z"


@dataclass
class Machine:
    """What pods find where they run."""

    folder: Path
    """For their own files."""
    home: Path
    """The folder in which their containers begin."""
    network: int
    """A descriptor of their network."""
    volumes: Mapping[str, Path]
    """Folders by the names of claims."""
    secrets: Mapping[tuple[str, str], str]
    """Values by secret and key."""
    visible: list[Path]
    """Folders that their image holds, should they lie below /tmp."""
    image: dict[str, str]
    """The image's own environment."""

    @property
    def hosts(self) -> Path:
        """What the DNS of the cluster knows."""
        return self.folder / "hosts"


@dataclass
class Pod:
    """A pod, from when it was made until nothing is left of it."""

    name: str
    kind: str
    index: int
    job: Object
    uid: str = field(default_factory=lambda: str(uuid.uuid4()))
    created: str = field(default_factory=lambda: f"{stamp()[:19]}Z")
    process: subprocess.Popen[bytes] | None = None
    lines: list[str] = field(default_factory=list)
    """The log so far, each line with its time."""
    log_ended: bool = False
    deleted: float | None = None
    ended: float | None = None

    @property
    def spec(self) -> Object:
        return self.job["spec"]["template"]["spec"]

    @property
    def host(self) -> str:
        """Its name in the DNS of the cluster."""
        job = self.job["metadata"]
        domain = f"{self.spec['subdomain']}.{job['namespace']}.svc"
        return f"{job['name']}-{self.index}.{domain}"

    @property
    def code(self) -> int | None:
        """The exit code as a container runtime has it."""
        status = self.process.returncode if self.process else None
        return 128 - status if status is not None and status < 0 else status

    @property
    def is_active(self) -> bool:
        return self.ended is None

    def start(self, machine: Machine) -> None:
        """Starts the container; the thread that calls this must outlive it."""
        (container,) = self.spec["containers"]
        own = machine.folder / self.name
        sources = {"emptyDir": own / "tmp"}
        sources["emptyDir"].mkdir(parents=True)
        mounts = {str(path): str(path) for path in machine.visible}
        mounts["/etc/hosts"] = str(machine.hosts)
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        for mount in container["volumeMounts"]:
            claim = volumes[mount["name"]].get("persistentVolumeClaim")
            source = machine.volumes[claim["claimName"]] if claim else sources["emptyDir"]
            mounts[mount["mountPath"]] = str(source)
        given = {
            "hostname": self.host.partition(".")[0],
            "network": machine.network,
            "mounts": mounts,
            "folder": str(machine.home),
            "command": container["command"],
        }
        self.process = subprocess.Popen(
            [sys.executable, "-S", kube_init.__file__, json.dumps(given)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment(container, machine),
            pass_fds=[machine.network],
            start_new_session=True,
        )
        threading.Thread(target=self._keep_log, daemon=True).start()

    def kill(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Ends all processes of the container."""
        if self.process and self.process.poll() is None:
            # Its log's thread may have seen its end in this moment.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, how)

    def observe(self) -> None:
        """Notices that the container has ended."""
        if self.is_active and self.process and self.process.poll() is not None and self.log_ended:
            self.ended = time.monotonic()

    def describe(self) -> Object:
        """What the API says of it."""
        template = self.job["spec"]["template"]["metadata"]
        index = str(self.index)
        metadata = {
            "name": self.name,
            "namespace": self.job["metadata"]["namespace"],
            "uid": self.uid,
            "creationTimestamp": self.created,
            "labels": template["labels"],
            "annotations": {
                **template["annotations"],
                "batch.kubernetes.io/job-completion-index": index,
            },
        }
        if self.deleted is not None:
            metadata["deletionTimestamp"] = self.created
        return {"metadata": metadata, "spec": self.spec, "status": self._status()}

    def _status(self) -> Object:
        if self.ended is not None:
            code = self.code
            phase = "Failed" if code else "Succeeded"
            state = {"terminated": {"exitCode": code, "reason": "Error" if code else "Completed"}}
            return {"phase": phase, "containerStatuses": [self._container(state)]}
        if self.process:
            state = {"running": {"startedAt": self.created}}
            return {"phase": "Running", "containerStatuses": [self._container(state)]}
        return {"phase": "Pending"}

    def _container(self, state: Object) -> Object:
        return {"name": self.spec["containers"][0]["name"], "state": state}

    def _environment(self, container: Object, machine: Machine) -> dict[str, str]:
        environment = dict(machine.image)
        for variable in container["env"]:
            if "value" in variable:
                environment[variable["name"]] = variable["value"]
            else:
                source = variable["valueFrom"]["secretKeyRef"]
                environment[variable["name"]] = machine.secrets[source["name"], source["key"]]
        return environment | {
            "JOB_COMPLETION_INDEX": str(self.index),
            "HOSTNAME": self.host.partition(".")[0],
        }

    def _keep_log(self) -> None:
        assert self.process is not None
        assert self.process.stdout is not None
        with self.process.stdout as output:
            for line in output:
                text = line.decode(errors="replace").rstrip("\n")
                self.lines.append(f"{stamp()} {text}")
        self.process.wait()
        self.log_ended = True
