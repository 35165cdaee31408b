"""The calls of the Kubernetes API that a launcher needs, by the official client.

Objects are read and written as dictionaries, as they stand in YAML. The client's own models are of
version 26, which TFX asks for: they drop fields that they do not know, such as a Job's
`podReplacementPolicy`, refuse answers that lack a field which was required then, and know no
`sinceTime` of a log. The dynamic client would first ask the server what it has.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
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
RETRY_SECONDS = 300.0
"""How long a call is repeated: an API server is away for minutes while it is upgraded."""
NETWORK_ERRORS = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError)
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0
_LOG_READ_SECONDS = 300.0
"""A log that is silent for so long is asked for again, as its connection may be dead."""
_PAUSE_SECONDS = 1.0
_TEMPORARY_STATUSES = {408, 409, 429, 500, 502, 503, 504}
"""409 is among them because a server answers it while it updates a quota."""
_METHODS = {"create": "POST", "delete": "DELETE", "get": "GET", "list": "GET", "patch": "PATCH"}
"""HTTP's, by the verbs of roles."""
_PATCH = {"Content-Type": "application/strategic-merge-patch+json"}
_EXISTS = "AlreadyExists"
_USER = re.compile(r'User "([^"]+)" cannot')
_MANIFEST_ACCOUNT = "system:serviceaccount:{}:pipeline-runner"
"""The subject that the manifest names, in the namespace that it is applied to."""
_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class ResourceKind(StrEnum):
    """A kind of object, as rules of roles and `kubectl` name it."""

    POD = "pods"
    SERVICE = "services"
    JOB = "jobs.batch"


class KubernetesApi:
    """Repeats calls while the server does not answer, and explains what it refuses.

    Each raises ConfigError for what this account may not do and for what Kubernetes refuses, and
    TrainingError if the server has not answered for `RETRY_SECONDS`.
    """

    def __init__(self) -> None:
        """Finds the server: in the cluster that this process runs in, or by KUBECONFIG.

        Raises:
          ConfigError: neither describes a server.
        """
        configuration = client.Configuration()
        self.namespace = configure(configuration)
        """Where everything lives: that of this pod, or of the kubeconfig."""
        # `_call` repeats instead: urllib3 limits the number of attempts, not the time.
        configuration.retries = False
        self._client = client.ApiClient(configuration)

    def create(self, kind: ResourceKind, body: Object) -> None:
        """Creates an object; one of its name is taken for the result of a call that was lost."""
        self._call("create", kind, body=body)

    def get_pod(self, name: str) -> Object | None:
        """A pod; None if there is none."""
        return self._call("get", ResourceKind.POD, name)

    def find(self, kind: ResourceKind, selector: str) -> list[Object]:
        """All objects whose labels match."""
        found = self._call("list", kind, query={"labelSelector": selector})
        return found["items"] if found else []

    def delete(self, kind: ResourceKind, name: str) -> None:
        """Deletes an object with what belongs to it, unless it is gone already."""
        self._call("delete", kind, name, query={"propagationPolicy": "Background"})

    def patch_job(self, name: str, changes: Object) -> None:
        """Changes fields of a Job, unless it is gone."""
        self._call("patch", ResourceKind.JOB, name, body=changes)

    def read_log(self, pod: str, container: str, since: str | None, follow: bool) -> Iterator[str]:
        """The lines of a container's log, each with its time, as they come.

        Args:
          pod: its name.
          container: the container's name.
          since: RFC 3339; lines of earlier seconds are left out.
          follow: whether to wait for more while the container runs.

        Raises:
          ConfigError: this account may not read logs.
          ApiException, HTTPError, HTTPException, OSError: the log cannot be read, or not further.
        """
        path = f"{self._path(ResourceKind.POD, pod)}/log"
        query = {"container": container, "timestamps": "true", "follow": str(follow).lower()}
        query |= {"sinceTime": since} if since else {}
        try:
            response = self._request("GET", path, query, read_seconds=_LOG_READ_SECONDS)
        except ApiException as error:
            if error.status in (401, 403):
                raise self._explain(error, "get pods/log") from None
            raise
        with contextlib.closing(response):
            for line in response:
                yield line.removesuffix(b"\n").decode(errors="replace")

    def _call(
        self,
        verb: str,
        kind: ResourceKind,
        name: str = "",
        query: Mapping[str, str] | None = None,
        body: Object | None = None,
    ) -> Object | None:
        """Asks until the server answers: the object; None if it is gone, or there already."""
        deadline = time.monotonic() + RETRY_SECONDS
        reason = ""
        while True:
            was_well = not reason
            try:
                response = self._request(_METHODS[verb], self._path(kind, name), query or {}, body)
                answer: Object = json.loads(response.data)
                return answer
            except ApiException as error:
                is_there = error.status == 409 and _status_of(error).get("reason") == _EXISTS
                if is_there or (error.status == 404 and name):
                    return None
                if error.status not in _TEMPORARY_STATUSES:
                    raise self._explain(error, f"{verb} {kind}") from None
                reason = f"HTTP {error.status}: {_message(error)}"
            except (*NETWORK_ERRORS, ValueError) as error:
                reason = str(error) or type(error).__name__
            if time.monotonic() > deadline:
                raise TrainingError(
                    f"the Kubernetes API at {self._client.configuration.host} has not answered for "
                    f"{RETRY_SECONDS:g} s ({reason}); see whether the cluster is well."
                )
            if was_well:
                logger.warning("The Kubernetes API does not answer (%s); asked again.", reason)
            time.sleep(_PAUSE_SECONDS)

    def _path(self, kind: ResourceKind, name: str) -> str:
        plural, _, group = kind.partition(".")
        root = f"/apis/{group}/v1" if group else "/api/v1"
        return f"{root}/namespaces/{self.namespace}/{plural}" + (f"/{name}" if name else "")

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Object | None = None,
        read_seconds: float = _READ_SECONDS,
    ) -> urllib3.HTTPResponse:
        """The server's answer, of which nothing has been read yet."""
        response: urllib3.HTTPResponse = self._client.call_api(
            path,
            method,
            query_params=list(query.items()),
            header_params={"Accept": "*/*", **(_PATCH if method == "PATCH" else {})},
            body=body,
            auth_settings=["BearerToken"],
            _return_http_data_only=True,
            _preload_content=False,
            _request_timeout=(_CONNECT_SECONDS, read_seconds),
        )
        return response

    def _explain(self, error: ApiException, action: str) -> ConfigError:
        """The error for an answer that does not change when the call is repeated."""
        message = _message(error)
        if error.status == 403 and (user := _USER.search(message)):
            return ConfigError(self._explain_rights(user[1], action))
        if error.status == 401:
            host = self._client.configuration.host
            return ConfigError(f"the Kubernetes API at {host} does not accept the account's token.")
        return ConfigError(
            f"Kubernetes refuses to {action} in namespace {self.namespace} "
            f"(HTTP {error.status}): {message}"
        )

    def _explain_rights(self, user: str, action: str) -> str:
        """What to do where an account lacks a right."""
        is_named = user == _MANIFEST_ACCOUNT.format(self.namespace)
        how = "" if is_named else f", with {user.rpartition(':')[2]} as its subject"
        return (
            f"{user} may not {action} in namespace {self.namespace}; a role with the rights that "
            f"the trainer needs is in {RBAC_MANIFEST}; apply it{how}: "
            f"`kubectl apply --namespace {self.namespace} --filename {RBAC_MANIFEST}`."
        )


def _message(error: ApiException) -> str:
    """The server's message, or the standard words for its HTTP status."""
    return str(_status_of(error).get("message") or error.reason)


def _status_of(error: ApiException) -> Object:
    """The Status object in an answer; empty where a proxy answered, say."""
    try:
        body = json.loads(error.body)
    except (ValueError, TypeError):
        return {}
    return body if isinstance(body, dict) else {}


def configure(configuration: client.Configuration) -> str:
    """Fills in where the server is and who asks.

    Args:
      configuration: changed in place.

    Returns:
      The namespace: that of this pod, or of the kubeconfig.

    Raises:
      ConfigError: this process runs in no cluster, and no kubeconfig describes one.
    """
    try:
        if os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=configuration)
            configuration.proxy = None  # The server is inside of the cluster.
            return _NAMESPACE_FILE.read_text().strip()
        # The client has read the variable when it was imported, which may have been too early.
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
