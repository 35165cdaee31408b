"""A small Kubernetes for tests: a real HTTP API whose pods are real processes of this machine.

with KubeServer(tmp_path, volumes={"data": tmp_path}) as kube:
    subprocess.run(step, env={**os.environ, **kube.environment})
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import kubernetes_validate
import yaml

Object = dict[str, Any]

ROOT = Path(__file__).parents[4]
MANIFEST = ROOT / "deploy" / "kubernetes" / "trainer-rbac.yaml"
OWNER = "trainer-step-0"
"""The name of the pod that the launcher believes to run in."""
NAMESPACE = "kubeflow"
VERSIONS = ("1.28", "1.37")
"""The oldest that is supported, and the newest that there are schemas of."""
_TOKEN = "a-token"  # noqa: S105 - of this server alone
_GRACE_SECONDS = 0.2
_TICK_SECONDS = 0.02
_PATH = re.compile(
    r"/api(?:s/(?P<group>\w+))?/v1/namespaces/(?P<namespace>[\w-]+)/(?P<plural>\w+)"
    r"(?:/(?P<name>[\w-]+))?(?:/(?P<sub>\w+))?"
)
_LABEL = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")
_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_TIED = ["setpriv", "--pdeathsig", "KILL"]
"""Lets what follows end with this process."""
_NETWORK = ["unshare", "--net", "sh", "-ec", "ip link set lo up; echo; exec sleep infinity"]
_POD = "unshare --mount --uts sh -ec"
"""A pod has its own host name, /tmp and volumes; all else is read-only."""


def why_not() -> str | None:
    """Why pods cannot run on this machine; None if they can."""
    try:
        probe = [
            *_TIED,
            *_NETWORK[:3],
            "-ec",
            f"ip link set lo up; {_POD} 'mount --bind /tmp /mnt'",
        ]
        subprocess.run(probe, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"pods need networks and mounts of their own: {error}"
    return None


def manifest_rules() -> list[Object]:
    """The rules of the role that the project ships."""
    (role,) = (d for d in yaml.safe_load_all(MANIFEST.read_text()) if d["kind"] == "Role")
    return list(role["rules"])


def problems(body: Object) -> list[str]:
    """What an API server would refuse: by its published schemas, and by its own checks."""
    for version in VERSIONS:
        try:
            kubernetes_validate.validate(body, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            return [f"{version}: {'.'.join(map(str, error.path))}: {error.message}"]
    metadata, spec = body["metadata"], body["spec"]
    wrong = {
        "name": not _DNS_LABEL.fullmatch(metadata["name"]),
        "labels": not all(map(_LABEL.fullmatch, metadata["labels"].values())),
    }
    if body["kind"] == "Job":
        pod = spec["template"]["spec"]
        (container,) = pod["containers"]
        names = [variable["name"] for variable in container["env"]]
        mounts = [mount["name"] for mount in container["volumeMounts"]]
        wrong |= {
            "host name": len(f"{metadata['name']}-{spec['completions'] - 1}") > 63,
            "completionMode": spec["completionMode"] != "Indexed",
            "restartPolicy": pod["restartPolicy"] != "Never",
            "subdomain": not _DNS_LABEL.fullmatch(pod["subdomain"]),
            "volumes": mounts != [volume["name"] for volume in pod["volumes"]],
            "a variable twice": len(set(names)) < len(names),
        }
    return [what for what, is_wrong in wrong.items() if is_wrong]


class Pod:
    """A pod, whose one container is a process of this machine."""

    def __init__(self, job: Object, index: int) -> None:
        self.job, self.index = job, index
        self.spec = job["spec"]["template"]["spec"]
        self.kind = job["metadata"]["labels"]["scopeline/task"]
        self.name = f"{job['metadata']['name']}-{index}-{secrets.token_hex(3)}"
        self.uid = str(uuid.uuid4())
        self.host = f"{job['metadata']['name']}-{index}.{self.spec['subdomain']}.{NAMESPACE}.svc"
        self.process: subprocess.Popen[bytes] | None = None
        self.lines: list[str] = []
        """The log so far, each line with its time."""
        self.log_ended = False
        self.held: Object | None = None
        """The status that it keeps instead of starting."""
        self.lost: Object = {}
        """What its status says besides, when it was taken away."""
        self.deleted: float | None = None
        self.ended: float | None = None

    @property
    def is_active(self) -> bool:
        return self.ended is None

    @property
    def code(self) -> int | None:
        """The exit code as a container runtime has it."""
        status = self.process.returncode if self.process else None
        return 128 - status if status is not None and status < 0 else status

    def start(self, kube: KubeServer) -> None:
        """Starts the container; the thread that calls this must outlive it."""
        (container,) = self.spec["containers"]
        own = kube.folder / self.name / "tmp"
        own.mkdir(parents=True)
        mounts = {"/etc/hosts": kube.hosts, **{str(path): path for path in kube.visible}}
        volumes = {volume["name"]: volume for volume in self.spec["volumes"]}
        for mount in container["volumeMounts"]:
            claim = volumes[mount["name"]].get("persistentVolumeClaim")
            mounts[mount["mountPath"]] = kube.volumes[claim["claimName"]] if claim else own
        # What lies below /tmp is out of sight as soon as that is another folder: so it comes last.
        del mounts["/tmp"]  # noqa: S108 - the pod's
        script = [f"hostname {self.host.partition('.')[0]}"]
        for target, source in sorted(mounts.items()):
            is_below = target.startswith("/tmp/")  # noqa: S108 - the pod's
            where = shlex.quote(f"{own}/{target[5:]}" if is_below else target)
            script += [f"mkdir -p {where}"] if Path(source).is_dir() else []
            script += [f"mount --bind {shlex.quote(str(source))} {where}"]
        script += [f"mount --rbind {shlex.quote(str(own))} /tmp", "mount -o remount,bind,ro /"]
        script += [f"cd {shlex.quote(str(ROOT))}", shlex.join(["exec", *container["command"]])]
        network = ["nsenter", f"--net=/proc/{kube.network.pid}/ns/net"]
        self.process = subprocess.Popen(
            [*_TIED, *network, *_POD.split(), "\n".join(script)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._environment(container, kube),
            start_new_session=True,
        )
        threading.Thread(target=self._keep_log, args=[self.process], daemon=True).start()

    def kill(self) -> None:
        """Ends all processes of the container."""
        if self.process and self.process.poll() is None:
            # Its log's thread may have seen its end in this moment.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, 9)

    def describe(self) -> Object:
        """What the API says of it."""
        template = self.job["spec"]["template"]["metadata"]
        index = {"batch.kubernetes.io/job-completion-index": str(self.index)}
        metadata = {"name": self.name, "uid": self.uid, "labels": template["labels"]}
        metadata["annotations"] = {**template["annotations"], **index}
        if self.deleted is not None:
            metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
        return {"metadata": metadata, "spec": self.spec, "status": self._status()}

    def _status(self) -> Object:
        if self.ended is not None and self.code is not None:
            state: Object = {"terminated": {"exitCode": self.code, "reason": "Error"}}
            phase = "Failed" if self.code or self.lost else "Succeeded"
        elif self.process:
            state, phase = {"running": {}}, "Running"
        else:
            return {"phase": "Pending", **(self.held or {})}
        name = self.spec["containers"][0]["name"]
        return {"phase": phase, "containerStatuses": [{"name": name, "state": state}], **self.lost}

    def _environment(self, container: Object, kube: KubeServer) -> dict[str, str]:
        environment = dict(kube.image)
        for variable in container["env"]:
            key = variable.get("valueFrom", {}).get("secretKeyRef")
            environment[variable["name"]] = (
                kube.secrets[key["name"], key["key"]] if key else variable["value"]
            )
        return {**environment, "JOB_COMPLETION_INDEX": str(self.index)}

    def _keep_log(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                now = time.time_ns()
                second = datetime.fromtimestamp(now // 10**9, UTC)
                stamp = f"{second:%Y-%m-%dT%H:%M:%S}.{now % 10**9:09d}Z"
                text = line.decode(errors="replace").removesuffix("\n")
                self.lines.append(f"{stamp} {text}")
        process.wait()
        self.log_ended = True


class KubeServer:
    """Does as an API server, the Job controller and the kubelet do; tests disturb it."""

    def __init__(
        self,
        folder: Path,
        volumes: Mapping[str, Path] | None = None,
        secrets: Mapping[tuple[str, str], str] | None = None,
        python_path: Sequence[Path] = (),
    ) -> None:
        """Prepares it.

        Args:
          folder: for files of its own; below it pods have their /tmp.
          volumes: folders by the names of claims.
          secrets: values by secret and key.
          python_path: what the pods' image has to import beside the project.
        """
        self.folder = folder / "kubernetes"
        self.folder.mkdir()
        self.hosts = self.folder / "hosts"
        """What the DNS of the cluster knows."""
        self.hosts.touch()
        self.volumes, self.secrets = volumes or {}, secrets or {}
        # A checkout may itself be below /tmp.
        self.visible = [path for path in (ROOT, Path(sys.prefix)) if path.is_relative_to("/tmp")]  # noqa: S108
        self.image = {
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.defpath]),
            "PYTHONPATH": os.pathsep.join([str(ROOT), *map(str, python_path)]),
            "TF_USE_LEGACY_KERAS": "1",
            "TF_CPP_MIN_LOG_LEVEL": "2",
        }
        self.lock = threading.RLock()
        self.objects: dict[str, dict[str, Object]] = {"services": {}, "jobs.batch": {}}
        self.pods: list[Pod] = []
        self.account = "pipeline-runner"
        """Of the pod that the launcher believes to run in."""
        self.rules = manifest_rules()
        self.used: Counter[tuple[str, str]] = Counter()
        """How often each verb was used on each resource."""
        self.created: list[Object] = []
        self.holds: dict[tuple[str, int], Object] = {}
        """Statuses that pods keep instead of starting, as long as they are in here."""
        self.cut_logs: list[int] = []
        """After so many lines connections of logs break, one after the other."""
        self.lost_logs: int | None = None
        """The HTTP status, 200 or 500, with which logs are answered whose containers are gone."""
        self.quota_conflicts: list[str] = []
        """Messages with which objects are refused, one after the other, as a quota has changed."""
        self.refuse_until = 0.0
        self.backoff = 10.0
        """Seconds until a pod that failed is replaced; doubled each time."""
        self._failures: dict[str, list[float]] = {}
        self._stopped = threading.Event()
        handler = type("Handler", (_Handler,), {"kube": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        kubeconfig = self.folder / "config"
        kubeconfig.write_text(yaml.safe_dump(_kubeconfig(self.url)))
        self.environment = {"KUBECONFIG": str(kubeconfig), "HOSTNAME": OWNER}
        """What a step needs to find it."""

    def __enter__(self) -> KubeServer:
        self.network = subprocess.Popen([*_TIED, *_NETWORK], stdout=subprocess.PIPE)
        assert self.network.stdout
        self.network.stdout.readline()
        self._controller = threading.Thread(target=self._control, daemon=True)
        self._controller.start()
        threading.Thread(target=self._server.serve_forever, args=[0.05], daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._stopped.set()
        self._controller.join()
        for pod in self.pods:
            pod.kill()
        for process in [self.network, *(pod.process for pod in self.pods if pod.process)]:
            process.kill()
            process.wait()

    @property
    def left(self) -> list[str]:
        """The names of all objects that there are."""
        with self.lock:
            names = [name for found in self.objects.values() for name in found]
            return names + [pod.name for pod in self.pods]

    def pod(self, kind: str, index: int, seconds: float = 60) -> Pod:
        """The pod of a worker, once it runs."""
        deadline = time.monotonic() + seconds
        while True:
            with self.lock:
                for pod in self.pods:
                    if (pod.kind, pod.index) == (kind, index) and pod.is_active and pod.process:
                        return pod
            assert time.monotonic() < deadline, f"no pod of {kind} {index}"
            time.sleep(_TICK_SECONDS)

    def bodies(self, kind: str) -> list[Object]:
        """All objects of a kind that were created."""
        return [body for body in self.created if body["kind"] == kind]

    def evict(self, kind: str, index: int, message: str) -> None:
        """Takes a pod away, as a node does that has too little of something."""
        condition = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
        pod = self.pod(kind, index)
        with self.lock:
            pod.lost = {"reason": "Evicted", "message": message, "conditions": [condition]}
            pod.kill()

    def refuse(self, seconds: float) -> None:
        """Answers nothing for a while."""
        self.refuse_until = time.monotonic() + seconds

    def delete(self, resource: str, name: str) -> bool:
        """Deletes an object and what belongs to it; whether it was there."""
        with self.lock:
            gone = self.objects.get(resource, {}).pop(name, None)
            found = [pod for pod in self.pods if pod.name == name or (gone and pod.job is gone)]
            for pod in found:
                pod.deleted = pod.deleted or time.monotonic()
            return bool(gone or found)

    def _control(self) -> None:
        known = ""
        while not self._stopped.wait(_TICK_SECONDS):
            with self.lock:
                for pod in list(self.pods):
                    self._care_for(pod)
                for job in self.objects["jobs.batch"].values():
                    self._reconcile(job)
                hosts = [pod.host for pod in self.pods if pod.process and pod.is_active]
            names = "\n".join(f"127.0.0.1 {host}" for host in ["localhost", *hosts]) + "\n"
            if names != known:
                # The file stays the same for all mounts, and is never empty.
                with self.hosts.open("r+") as file:
                    file.write(names)
                    file.truncate()
            known = names

    def _care_for(self, pod: Pod) -> None:
        now = time.monotonic()
        if pod.held and pod.deleted is None and (pod.kind, pod.index) not in self.holds:
            pod.held = None
            pod.start(self)
        if pod.is_active and pod.log_ended:
            pod.ended = now
            if pod.code or pod.lost:
                self._failures.setdefault(pod.job["metadata"]["name"], []).append(now)
        if pod.deleted is not None:
            if now - pod.deleted > _GRACE_SECONDS:
                pod.kill()
            if pod.process is None or not pod.is_active:
                self.pods.remove(pod)

    def _reconcile(self, job: Object) -> None:
        spec, failures = job["spec"], self._failures.get(job["metadata"]["name"], [])
        mine, now = [pod for pod in self.pods if pod.job is job], time.monotonic()
        if now - job["created"] > spec["activeDeadlineSeconds"]:
            job["is_doomed"] = True
            for pod in mine:
                if pod.is_active:
                    pod.deleted = pod.deleted or now
        due = failures[-1] + self.backoff * 2 ** (len(failures) - 1) if failures else 0
        if "is_doomed" in job or now < due:
            return
        for index in range(spec["completions"]):
            if not any(pod.index == index and (pod.is_active or pod.code == 0) for pod in mine):
                pod = Pod(job, index)
                pod.held = self.holds.get((pod.kind, index))
                self.pods.append(pod)
                if pod.held is None:
                    pod.start(self)


def _kubeconfig(url: str) -> Object:
    context = {"cluster": "test", "user": "test", "namespace": NAMESPACE}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "test",
        "clusters": [{"name": "test", "cluster": {"server": url}}],
        "users": [{"name": "test", "user": {"token": _TOKEN}}],
        "contexts": [{"name": "test", "context": context}],
    }


class _Refusal(Exception):  # noqa: N818 - an answer
    def __init__(self, code: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class _Handler(BaseHTTPRequestHandler):
    """Authenticates, authorises, checks, and answers."""

    protocol_version = "HTTP/1.1"
    kube: KubeServer

    def log_message(self, *arguments: object) -> None:
        """Keeps quiet."""

    def handle(self) -> None:
        # Clients are killed while they read a log.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            super().handle()

    def do_GET(self) -> None:
        self._answer("get")

    def do_POST(self) -> None:
        self._answer("create")

    def do_DELETE(self) -> None:
        self._answer("delete")

    def do_PATCH(self) -> None:
        self._answer("patch")

    def _answer(self, verb: str) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query))
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null")
        if time.monotonic() < self.kube.refuse_until:
            self.close_connection = True
            return
        match = _PATH.fullmatch(url.path)
        assert match, url.path
        parts = match.groupdict("")
        try:
            resource = self._admit("list" if verb == "get" and not parts["name"] else verb, parts)
            if parts["sub"] == "log":
                self._send_log(parts["name"], query)
                return
            with self.kube.lock:
                answer = self._do(verb, resource, parts["name"], query, body)
            self._send(200, answer)
        except _Refusal as error:
            status = {"kind": "Status", "status": "Failure", "message": str(error)}
            self._send(error.code, {**status, "reason": error.reason, "code": error.code})

    def _admit(self, verb: str, parts: Mapping[str, str]) -> str:
        """Authenticates and authorises; returns the resource."""
        if self.headers.get("Authorization") != f"Bearer {_TOKEN}":
            raise _Refusal(401, "Unauthorized")
        group, namespace = parts["group"], parts["namespace"]
        name = f"{parts['plural']}/{parts['sub']}" if parts["sub"] else parts["plural"]
        resource = f"{name}.{group}" if group else name
        self.kube.used[verb, resource] += 1
        is_allowed = any(
            verb in rule["verbs"] and name in rule["resources"] and group in rule["apiGroups"]
            for rule in self.kube.rules
        )
        if namespace != NAMESPACE or not is_allowed:
            user = f"system:serviceaccount:{NAMESPACE}:{self.kube.account}"
            raise _Refusal(
                403,
                f'{resource} is forbidden: User "{user}" cannot {verb} resource "{name}" in API '
                f'group "{group}" in the namespace "{namespace}"',
                "Forbidden",
            )
        return resource

    def _do(
        self, verb: str, resource: str, name: str, query: Mapping[str, str], body: Any
    ) -> Object:
        kube = self.kube
        if verb == "create":
            return self._create(resource, body)
        if verb == "get" and not name:
            key, _, value = query["labelSelector"].partition("=")
            items = [pod.describe() for pod in kube.pods] if resource == "pods" else []
            items += [{"metadata": o["metadata"]} for o in kube.objects.get(resource, {}).values()]
            return {"items": [i for i in items if i["metadata"]["labels"].get(key) == value]}
        if (verb, resource, name) == ("get", "pods", OWNER):
            metadata = {"name": name, "uid": "8e9d1a2c-owner"}
            return {"metadata": metadata, "spec": {"serviceAccountName": kube.account}}
        if verb == "delete" and kube.delete(resource, name):
            return {"kind": "Status", "status": "Success"}
        found = kube.objects.get(resource, {}).get(name)
        if verb == "patch" and found:
            assert self.headers["Content-Type"] == "application/strategic-merge-patch+json"
            assert set(body["spec"]) == {"activeDeadlineSeconds"}, "the rest is immutable"
            found["spec"].update(body["spec"])
            return {"metadata": found["metadata"]}
        raise _Refusal(404, f'{resource} "{name}" not found')

    def _create(self, resource: str, body: Object) -> Object:
        kube, name = self.kube, body["metadata"]["name"]
        if found := problems(body):
            raise _Refusal(422, f"{body['kind']} is invalid: {'; '.join(found)}")
        if kube.quota_conflicts:
            raise _Refusal(409, kube.quota_conflicts.pop(), "Conflict")
        if name in kube.objects[resource]:
            raise _Refusal(409, f'{resource} "{name}" already exists', "AlreadyExists")
        kube.created.append(json.loads(json.dumps(body)))
        kube.objects[resource][name] = {**body, "created": time.monotonic()}
        return {"metadata": body["metadata"]}

    def _send(self, code: int, body: Object) -> None:
        encoded = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def _send_log(self, name: str, query: Mapping[str, str]) -> None:
        kube = self.kube
        pod = next((pod for pod in list(kube.pods) if pod.name == name), None)
        if pod is None or pod.process is None:
            raise _Refusal(404 if pod is None else 400, f"{name} has no log")
        while kube.lost_logs and not pod.log_ended:
            time.sleep(_TICK_SECONDS)
        if kube.lost_logs == 500:
            raise _Refusal(500, "failed to create fsnotify watcher", "InternalError")
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        if kube.lost_logs:
            self._send_chunk("unable to retrieve container logs for containerd://6f1c")
        else:
            limit = kube.cut_logs.pop(0) if kube.cut_logs else None
            if not self._send_lines(pod, query, limit):
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")

    def _send_lines(self, pod: Pod, query: Mapping[str, str], limit: int | None) -> bool:
        """Sends a log from a second on; false if the connection is to break, within a line."""
        since, sent, read = query.get("sinceTime", ""), 0, 0
        while True:
            is_over = pod.log_ended or query["follow"] == "false"
            for line in pod.lines[read:]:
                read += 1
                if line[:19] >= since[:19]:
                    if sent == limit:
                        self._send_chunk(line[: len(line) // 2])
                        return False
                    self._send_chunk(line + "\n")
                    sent += 1
            if is_over:
                return True
            time.sleep(_TICK_SECONDS)

    def _send_chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
