"""The few calls of the Kubernetes API that a launcher needs, on plain dictionaries."""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any

import urllib3
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException

from trainer_module.errors import ConfigError, TrainingError

logger = logging.getLogger(__name__)

Object = dict[str, Any]
RBAC_MANIFEST = "deploy/kubernetes/trainer-rbac.yaml"
PATIENCE_SECONDS = 300.0
"""How long an API server may not answer: it is away for minutes while it is upgraded."""
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_TIMEOUTS = (5.0, 30.0)
_LOG_TIMEOUTS = (5.0, 300.0)
"""A log that is silent for so long is asked for anew: its connection may be dead."""
_PAUSE_SECONDS = 1.0
_MAY_GO_AWAY = {408, 409, 429, 500, 502, 503, 504}
"""With 409 a server also says that it was asked at a bad moment: while it counts a quota anew."""
_NETWORK_ERRORS = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError)
_USER = re.compile(r'User "([^"]+)" cannot')
_MANIFEST_ACCOUNT = "system:serviceaccount:{}:pipeline-runner"
"""The subject that the manifest names, in the namespace that it is applied to."""


class ResourceKind(Enum):
    """A kind of object, as its URLs name it."""

    POD = ("/api/v1", "pods", "pods")
    SERVICE = ("/api/v1", "services", "services")
    JOB = ("/apis/batch/v1", "jobs", "jobs.batch")

    @property
    def resource(self) -> str:
        """As rules of roles and `kubectl` name it."""
        return self.value[2]

    def path(self, namespace: str, name: str = "", sub: str = "") -> str:
        """The path of its collection, of one object, or of a part of that."""
        group, plural, _ = self.value
        parts = [group, "namespaces", namespace, plural, name, sub]
        return "/".join(part for part in parts if part)


class KubernetesApi:
    """Calls that are repeated while the server does not answer, and explain what it refuses."""

    def __init__(self) -> None:
        """Finds the server: in the cluster that this process runs in, or by KUBECONFIG.

        Raises:
          ConfigError: neither describes a server.
        """
        configuration = client.Configuration()
        self.namespace = _configure(configuration)
        """Where everything lives: that of this pod, or of the kubeconfig."""
        # Repeated here, where the time is limited.
        configuration.retries = False
        self._client = client.ApiClient(configuration)

    def create(self, kind: ResourceKind, body: Object) -> None:
        """Creates an object; one of its name is taken for the answer to a call that was lost."""
        try:
            self._call("POST", kind, body=body)
        except _ExistsError:
            return

    def get(self, kind: ResourceKind, name: str) -> Object | None:
        """An object; None if there is none."""
        try:
            return self._call("GET", kind, name)
        except _GoneError:
            return None

    def list(self, kind: ResourceKind, selector: str) -> list[Object]:
        """All objects whose labels match."""
        found: list[Object] = self._call("GET", kind, query={"labelSelector": selector})["items"]
        return found

    def delete(self, kind: ResourceKind, name: str) -> None:
        """Deletes an object with what belongs to it, unless it is gone already."""
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"}
        try:
            self._call("DELETE", kind, name, body=body)
        except _GoneError:
            return

    def patch(self, kind: ResourceKind, name: str, changes: Object) -> None:
        """Changes fields of an object, unless it is gone."""
        try:
            self._call("PATCH", kind, name, body=changes)
        except _GoneError:
            return

    def read_log(self, pod: str, container: str, since: str | None, follow: bool) -> Iterator[str]:
        """The lines of a container's log, each with its time, as they come.

        Args:
          pod: its name.
          container: the container's name.
          since: RFC 3339; earlier lines are left out.
          follow: whether to wait for more while the container runs.

        Raises:
          ConfigError: this account may not read logs.
          ApiException, HTTPError, HTTPException, OSError: the log cannot be read, or not further.
        """
        query = {"container": container, "timestamps": "true", "follow": str(follow).lower()}
        query |= {"sinceTime": since} if since else {}
        try:
            response = self._request(
                "GET", ResourceKind.POD, pod, "log", query, None, _LOG_TIMEOUTS
            )
        except ApiException as error:
            if error.status in (401, 403):
                raise self._explain(error, "GET", ResourceKind.POD, pod, "log") from None
            raise
        unread = b""
        try:
            for chunk in response.stream(65536, decode_content=True):
                *lines, unread = (unread + chunk).split(b"\n")
                yield from (line.decode(errors="replace") for line in lines)
            if unread:
                yield unread.decode(errors="replace")
        finally:
            response.close()

    def _call(
        self,
        method: str,
        kind: ResourceKind,
        name: str = "",
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
    ) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        warned = False
        while True:
            try:
                response = self._request(method, kind, name, "", query, body, _TIMEOUTS)
                return json.loads(response.data)
            except ApiException as error:
                if error.status not in _MAY_GO_AWAY or _exists(error):
                    raise self._explain(error, method, kind, name) from None
                what = f"HTTP {error.status}: {_message(error)}"
            except _NETWORK_ERRORS as error:
                what = str(error) or type(error).__name__
            except ValueError:
                what = "its answer is no JSON"
            if time.monotonic() > deadline:
                raise TrainingError(
                    f"the Kubernetes API at {self._client.configuration.host} has not answered for "
                    f"{PATIENCE_SECONDS:g} s ({what}); see whether the cluster is well."
                )
            if not warned:
                logger.warning("The Kubernetes API does not answer (%s); asked again.", what)
            warned = True
            time.sleep(_PAUSE_SECONDS)

    def _request(
        self,
        method: str,
        kind: ResourceKind,
        name: str,
        sub: str,
        query: Mapping[str, str] | None,
        body: Object | None,
        timeouts: tuple[float, float],
    ) -> Any:
        content = "merge-patch+json" if method == "PATCH" else "json"
        return self._client.call_api(
            kind.path(self.namespace, name, sub),
            method,
            query_params=list((query or {}).items()),
            header_params={"Accept": "*/*", "Content-Type": f"application/{content}"},
            body=body,
            auth_settings=["BearerToken"],
            _return_http_data_only=True,
            _preload_content=False,
            _request_timeout=timeouts,
        )

    def _explain(
        self, error: ApiException, method: str, kind: ResourceKind, name: str, sub: str = ""
    ) -> Exception:
        message = _message(error)
        if error.status == 404 and name:
            return _GoneError(message)
        if _exists(error):
            return _ExistsError(message)
        what = f"{_verb(method, name)} {kind.resource}{f'/{sub}' if sub else ''}"
        if error.status == 403 and (user := _USER.search(message)):
            return ConfigError(self._explain_rights(user[1], what))
        if error.status == 401:
            host = self._client.configuration.host
            return ConfigError(f"the Kubernetes API at {host} does not accept the account's token.")
        return ConfigError(
            f"Kubernetes refuses to {what} in namespace {self.namespace} "
            f"(HTTP {error.status}): {message}"
        )

    def _explain_rights(self, user: str, what: str) -> str:
        """What to do where an account lacks a right."""
        is_named = user == _MANIFEST_ACCOUNT.format(self.namespace)
        how = "" if is_named else f", with {user.rpartition(':')[2]} as its subject"
        return (
            f"{user} may not {what} in namespace {self.namespace}; a role with the rights that the "
            f"trainer needs is in {RBAC_MANIFEST}; apply it{how}: "
            f"`kubectl apply --namespace {self.namespace} --filename {RBAC_MANIFEST}`."
        )


class _GoneError(Exception):
    """There is no such object."""


class _ExistsError(Exception):
    """There is such an object."""


def _configure(configuration: client.Configuration) -> str:
    """Fills in where the server is and who asks; returns the namespace that goes with it."""
    try:
        if os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=configuration)
            configuration.proxy = None  # The server is inside of the cluster.
            return _NAMESPACE_FILE.read_text().strip()
        # The client itself has read the variable when it was imported.
        file = os.environ.get("KUBECONFIG") or None
        config.load_kube_config(file, client_configuration=configuration)
        _, context = config.list_kube_config_contexts(file)
        return context["context"].get("namespace") or "default"
    except (config.ConfigException, yaml.YAMLError, OSError) as error:
        raise ConfigError(
            "train.cluster.launcher is kubernetes, but this process neither runs in a cluster nor "
            f"does KUBECONFIG lead to one ({str(error).rstrip('.')}); compile the pipeline with "
            "kubeflow_runner.py, or use the launcher local."
        ) from None


def _verb(method: str, name: str) -> str:
    if method == "GET":
        return "get" if name else "list"
    return {"POST": "create", "DELETE": "delete", "PATCH": "patch"}[method]


def _exists(error: ApiException) -> bool:
    """Whether the server refuses to create what is there already."""
    return error.status == 409 and _body(error).get("reason") == "AlreadyExists"


def _message(error: ApiException) -> str:
    """What the server says, in a line."""
    return str(_body(error).get("message") or error.reason)


def _body(error: ApiException) -> Object:
    """The Status object that an answer holds; empty if it holds none."""
    try:
        body = json.loads(error.body)
    except (ValueError, TypeError):  # Of whoever stands between.
        return {}
    return body if isinstance(body, dict) else {}
