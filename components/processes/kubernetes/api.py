"""The calls of the Kubernetes API that a launcher needs, by the official client.

Objects are read and written as dictionaries, as they stand in YAML. The client's own models are of
version 26, which TFX asks for: they drop fields that they do not know, such as a Job's
`podReplacementPolicy`, and refuse answers that lack a field which was required then. The dynamic
client would first ask the server what it has, by calls that nothing repeats while it is away.
"""

from __future__ import annotations

import http.client
import json
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

import urllib3
import yaml
from kubernetes import client, config
from kubernetes.client.exceptions import ApiException
from kubernetes.watch import Watch

from trainer_module.errors import ConfigError, TrainingError

logger = logging.getLogger(__name__)

Object = dict[str, Any]
RBAC_MANIFEST = "deploy/kubernetes/trainer-rbac.yaml"
RETRY_SECONDS = 300.0
"""How long a call is repeated: an API server is away for minutes while it is upgraded."""
WATCH_SECONDS = 10
"""How long one request for changes lasts; the next one goes on where it ended."""
NETWORK_ERRORS = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError)
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0
_LOG_READ_SECONDS = 300.0
"""A log that is silent for so long is asked for again, as its connection may be dead."""
_WATCH_READ_SECONDS = WATCH_SECONDS + 10.0
_PAUSE_SECONDS = 1.0
_TEMPORARY_STATUSES = {408, 409, 429, 500, 502, 503, 504}
"""409 is among them because a server answers it while it updates a quota."""
_USER = re.compile(r'User "([^"]+)" cannot')
_MANIFEST_ACCOUNT = "system:serviceaccount:{}:pipeline-runner"
"""The subject that the manifest names, in the namespace that it is applied to."""


class ResourceKind(StrEnum):
    """A kind of object, as rules of roles and `kubectl` name it."""

    POD = "pods"
    SERVICE = "services"
    JOB = "jobs.batch"


class Listing(NamedTuple):
    """Objects at one moment."""

    items: list[Object]
    version: str
    """The resource version, from which on changes can be watched."""


class WatchEndedError(Exception):
    """Changes may have been missed, so the objects have to be listed again."""


class KubernetesApi:
    """Repeats calls while the server does not answer, and explains what it refuses."""

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
        core, batch = client.CoreV1Api(self._client), client.BatchV1Api(self._client)
        self._methods: dict[tuple[str, ResourceKind], Callable[..., Any]] = {
            ("get", ResourceKind.POD): core.read_namespaced_pod,
            ("list", ResourceKind.POD): core.list_namespaced_pod,
            ("delete", ResourceKind.POD): core.delete_namespaced_pod,
            ("create", ResourceKind.SERVICE): core.create_namespaced_service,
            ("list", ResourceKind.SERVICE): core.list_namespaced_service,
            ("delete", ResourceKind.SERVICE): core.delete_namespaced_service,
            ("create", ResourceKind.JOB): batch.create_namespaced_job,
            ("list", ResourceKind.JOB): batch.list_namespaced_job,
            ("patch", ResourceKind.JOB): batch.patch_namespaced_job,
            ("delete", ResourceKind.JOB): batch.delete_namespaced_job,
        }

    def create(self, kind: ResourceKind, body: Object) -> None:
        """Creates an object; one of its name is taken for the result of a call that was lost."""
        try:
            self._call("create", kind, body=body)
        except _ExistsError:
            return

    def get_pod(self, name: str) -> Object | None:
        """Returns a pod; None if there is none."""
        try:
            return self._call("get", ResourceKind.POD, name=name)
        except _GoneError:
            return None

    def list(self, kind: ResourceKind, selector: str) -> Listing:
        """All objects whose labels match."""
        found = self._call("list", kind, label_selector=selector)
        return Listing(found["items"], found["metadata"]["resourceVersion"])

    def delete(self, kind: ResourceKind, name: str) -> None:
        """Deletes an object with what belongs to it, unless it is gone already."""
        try:
            self._call("delete", kind, name=name, propagation_policy="Background")
        except _GoneError:
            return

    def patch_job(self, name: str, changes: Object) -> None:
        """Changes fields of a Job, unless it is gone."""
        try:
            self._call("patch", ResourceKind.JOB, name=name, body=changes)
        except _GoneError:
            return

    def watch_pods(self, selector: str, version: str) -> Iterator[tuple[str, Object]]:
        """Yields the changes of pods whose labels match, as they come, for `WATCH_SECONDS`.

        Args:
          selector: of the labels.
          version: the resource version after which changes count.

        Yields:
          `ADDED`, `MODIFIED` or `DELETED`, and the pod as it is then.

        Raises:
          ConfigError: this account may not watch pods, or Kubernetes refuses it.
          WatchEndedError: the connection broke, or the version is too old.
        """
        # With this type, the client keeps to dictionaries.
        changes = Watch(return_type="object").stream(
            self._methods["list", ResourceKind.POD],
            namespace=self.namespace,
            label_selector=selector,
            resource_version=version,
            timeout_seconds=WATCH_SECONDS,
            _request_timeout=(_CONNECT_SECONDS, _WATCH_READ_SECONDS),
        )
        try:
            for change in changes:
                yield change["type"], change["object"]
        except ApiException as error:
            if error.status == 410 or error.status in _TEMPORARY_STATUSES:
                raise WatchEndedError(f"HTTP {error.status}: {_message(error)}") from None
            raise self._explain(error, f"watch {ResourceKind.POD}") from None
        except (*NETWORK_ERRORS, ValueError, LookupError) as error:
            raise WatchEndedError(str(error) or type(error).__name__) from None

    def read_log(self, pod: str, container: str, since: str | None, follow: bool) -> Iterator[str]:
        """Yields the lines of a container's log, each with its time, as they come.

        The client's `read_namespaced_pod_log` knows no `sinceTime`, by which a log is read on after
        its connection broke, and `Watch` fails at a character whose bytes come in two pieces and
        loses a last line that does not end.

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
            response = self._client.call_api(
                "/api/v1/namespaces/{namespace}/pods/{name}/log",
                "GET",
                path_params={"namespace": self.namespace, "name": pod},
                query_params=list(query.items()),
                header_params={"Accept": "*/*"},
                auth_settings=["BearerToken"],
                _return_http_data_only=True,
                _preload_content=False,
                _request_timeout=(_CONNECT_SECONDS, _LOG_READ_SECONDS),
            )
        except ApiException as error:
            if error.status in (401, 403):
                raise self._explain(error, "get pods/log") from None
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

    def _call(self, verb: str, kind: ResourceKind, **arguments: Any) -> Any:
        """Calls a method of the client until the server answers, and returns the answer's JSON."""
        deadline = time.monotonic() + RETRY_SECONDS
        warned = False
        while True:
            try:
                response = self._methods[verb, kind](
                    namespace=self.namespace,
                    _preload_content=False,
                    _request_timeout=(_CONNECT_SECONDS, _READ_SECONDS),
                    **arguments,
                )
                return json.loads(response.data)
            except ApiException as error:
                if error.status not in _TEMPORARY_STATUSES or _exists(error):
                    is_named = "name" in arguments
                    raise self._explain(error, f"{verb} {kind}", is_named) from None
                reason = f"HTTP {error.status}: {_message(error)}"
            except NETWORK_ERRORS as error:
                reason = str(error) or type(error).__name__
            except ValueError:
                reason = "its answer is no JSON"
            if time.monotonic() > deadline:
                raise TrainingError(
                    f"the Kubernetes API at {self._client.configuration.host} has not answered for "
                    f"{RETRY_SECONDS:g} s ({reason}); see whether the cluster is well."
                )
            if not warned:
                logger.warning("The Kubernetes API does not answer (%s); asked again.", reason)
            warned = True
            time.sleep(_PAUSE_SECONDS)

    def _explain(self, error: ApiException, action: str, is_named: bool = False) -> Exception:
        """Returns the error for an answer that does not change when the call is repeated."""
        message = _message(error)
        if error.status == 404 and is_named:
            return _GoneError(message)
        if _exists(error):
            return _ExistsError(message)
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


class _GoneError(Exception):
    """There is no such object."""


class _ExistsError(Exception):
    """There is such an object."""


def _exists(error: ApiException) -> bool:
    """Returns whether the server refuses to create what is there already."""
    return error.status == 409 and _status_of(error).get("reason") == "AlreadyExists"


def _message(error: ApiException) -> str:
    """Returns the server's message, or the standard words for its HTTP status."""
    return str(_status_of(error).get("message") or error.reason)


def _status_of(error: ApiException) -> Object:
    """Returns the Status object in an answer; empty where a proxy answered, say."""
    try:
        body = json.loads(error.body)
    except (ValueError, TypeError):
        return {}
    return body if isinstance(body, dict) else {}


_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


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
