"""The HTTP side of the small Kubernetes: authenticates, authorises, checks, and answers."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from tests.support import kube_checks

if TYPE_CHECKING:
    from tests.support.kube_server import KubeServer

Object = dict[str, Any]

NAMESPACE = "kubeflow"
TOKEN = "a-token"  # noqa: S105 - of this server alone
_PATH = re.compile(
    r"/api(?:s/(?P<group>\w+))?/v1/namespaces/(?P<namespace>[\w-]+)/(?P<plural>\w+)"
    r"(?:/(?P<name>[\w-]+))?(?:/(?P<sub>\w+))?"
)


def _matches(selector: str, item: Object) -> bool:
    key, _, value = selector.partition("=")
    return item["metadata"]["labels"].get(key) == value


def handler_of(kube: KubeServer) -> type[BaseHTTPRequestHandler]:
    """Answers the requests to a server."""
    return type("Handler", (_Handler,), {"server_of": kube})


class _Refusal(Exception):  # noqa: N818 - an answer
    def __init__(self, code: int, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_of: KubeServer

    def log_message(self, *arguments: object) -> None:
        """Keeps quiet."""

    def handle(self) -> None:
        # Clients are killed while they read a log or changes.
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
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        length = int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length) or b"null")
        try:
            match = _PATH.fullmatch(url.path)
            if match is None:
                raise _Refusal(404, f"no such path: {url.path}")
            parts = {key: value or "" for key, value in match.groupdict().items()}
            verb = "watch" if query.get("watch") == "True" else verb
            resource = self._admit(verb, parts)
            if parts["sub"] == "log":
                self._send_log(parts["name"], query)
                return
            if query.get("watch") == "True":
                self._send_changes(query)
                return
            self._send(200, self._do(verb, resource, parts["name"], query, body))
        except _Refusal as error:
            status = {"kind": "Status", "status": "Failure", "message": str(error)}
            self._send(error.code, {**status, "reason": error.reason, "code": error.code})

    def _admit(self, verb: str, parts: Mapping[str, str]) -> str:
        """Authenticates and authorises; returns the resource."""
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            raise _Refusal(401, "Unauthorized")
        resource = parts["plural"] + (f".{parts['group']}" if parts["group"] else "")
        given = f"{parts['plural']}/{parts['sub']}" if parts["sub"] else resource
        verb = "list" if verb == "get" and not parts["name"] else verb
        self.server_of.used[verb, given] += 1
        is_home = parts["namespace"] == NAMESPACE
        if not is_home or not kube_checks.is_allowed(self.server_of.rules, verb, given):
            user = f"system:serviceaccount:{NAMESPACE}:{self.server_of.account}"
            raise _Refusal(
                403,
                f'{given} is forbidden: User "{user}" cannot {verb} resource "{given}" in API '
                f'group "{parts["group"]}" in the namespace "{parts["namespace"]}"',
                "Forbidden",
            )
        return resource

    def _do(
        self, verb: str, resource: str, name: str, query: Mapping[str, str], body: Any
    ) -> Object:
        cluster = self.server_of.cluster
        with cluster.lock:
            if verb == "create":
                return self._create(resource, body)
            if verb == "get" and not name:
                items = self._select(resource, query["labelSelector"])
                metadata = {"resourceVersion": str(cluster.version)}
                return {"kind": "List", "metadata": metadata, "items": items}
            if resource == "pods" and verb == "get" and name in cluster.owners:
                spec = {"serviceAccountName": self.server_of.account}
                return {"metadata": {"name": name, "uid": cluster.owners[name]}, "spec": spec}
            if verb == "delete" and cluster.remove(resource, name):
                return {"kind": "Status", "status": "Success"}
            found = cluster.objects.get(resource, {}).get(name)
            if verb == "patch" and found:
                assert self.headers["Content-Type"] == "application/strategic-merge-patch+json"
                assert set(body["spec"]) == {"activeDeadlineSeconds"}, "the rest is immutable"
                found["spec"].update(body["spec"])
                return {"metadata": found["metadata"]}
        raise _Refusal(404, f'{resource} "{name}" not found')

    def _create(self, resource: str, body: Object) -> Object:
        kube = self.server_of
        if found := kube_checks.problems(body):
            raise _Refusal(422, f"{body['kind']} is invalid: {'; '.join(found)}")
        if body["metadata"]["name"] in kube.cluster.objects[resource]:
            message = f'{resource} "{body["metadata"]["name"]}" already exists'
            raise _Refusal(409, message, "AlreadyExists")
        body["metadata"]["namespace"] = NAMESPACE
        kube.created.append(json.loads(json.dumps(body)))
        kube.cluster.add(resource, body)
        return {"metadata": body["metadata"]}

    def _select(self, resource: str, selector: str) -> list[Object]:
        cluster = self.server_of.cluster
        if resource == "pods":
            items = cluster.record()
        else:
            items = [{"metadata": o["metadata"]} for o in cluster.objects[resource].values()]
        return [item for item in items if _matches(selector, item)]

    def _send(self, code: int, body: Object) -> None:
        encoded = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(encoded)))
        self.end_headers()
        self.wfile.write(encoded)

    def _send_changes(self, query: Mapping[str, str]) -> None:
        """Sends what changes after a version, an event in each line, until the time is over."""
        cluster = self.server_of.cluster
        version = int(query["resourceVersion"])
        deadline = time.monotonic() + int(query["timeoutSeconds"])
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while time.monotonic() < deadline:
            with cluster.lock:
                changes = [change for change in cluster.changes if change.version > version]
            for change in changes:
                version = change.version
                if _matches(query["labelSelector"], change.pod):
                    line = json.dumps({"type": change.kind, "object": change.pod})
                    self._send_chunk(line + "\n")
            time.sleep(0.02)
        self.wfile.write(b"0\r\n\r\n")

    def _send_log(self, name: str, query: Mapping[str, str]) -> None:
        cluster = self.server_of.cluster
        with cluster.lock:
            pod = next((pod for pod in cluster.pods if pod.name == name), None)
        if pod is None:
            raise _Refusal(404, f'pods "{name}" not found')
        if pod.process is None:
            raise _Refusal(400, f'container "task" in pod "{name}" is waiting to start')
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        since = query.get("sinceTime", "")
        read = 0
        while True:
            is_over = pod.log_ended or query["follow"] == "false"
            for line in pod.lines[read:]:
                read += 1
                if line[:19] >= since[:19]:
                    self._send_chunk(line + "\n")
            if is_over:
                break
            time.sleep(0.02)
        self.wfile.write(b"0\r\n\r\n")

    def _send_chunk(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
