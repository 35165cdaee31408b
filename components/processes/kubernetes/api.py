"""The calls of the Kubernetes API that a launcher needs, with the official client.

Objects are read and written as dictionaries with the structure of the YAML. The client's models and
its dynamic client are not used, for two reasons. TFX requires version 26 of the client, whose
models drop newer fields, such as a Job's `podReplacementPolicy`, and reject responses without
fields that were required then. The dynamic client would first query the server's resources, and
does not retry these queries while the server is unavailable.
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
from trainer_module.typed_words import typed_kubeflow_program

logger = logging.getLogger(__name__)

Object = dict[str, Any]
RBAC_MANIFEST = "deploy/kubernetes/trainer-rbac.yaml"
RETRY_SECONDS = 300.0
"""The time for which a call is retried. During an upgrade, an API server is unavailable for
minutes."""
WATCH_SECONDS = 10
"""The duration of a watch request. The next request continues from its end."""
NETWORK_ERRORS = (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError)
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0
_LOG_READ_SECONDS = 300.0
"""The time without output after which a log is requested again, as its connection may be broken."""
_WATCH_READ_SECONDS = WATCH_SECONDS + 10.0
_PAUSE_SECONDS = 1.0
_TEMPORARY_STATUSES = {408, 409, 429, 500, 502, 503, 504}
"""The statuses after which a call is retried. A server returns 409 while it updates a quota."""
_USER = re.compile(r'User "([^"]+)" cannot')
_MANIFEST_ACCOUNT = "system:serviceaccount:{}:pipeline-runner"
"""The account to which the manifest gives rights, with a placeholder for the namespace."""


class ResourceKind(StrEnum):
    """A kind of object, by its name in the rules of roles and in `kubectl`."""

    POD = "pods"
    SERVICE = "services"
    JOB = "jobs.batch"


class Listing(NamedTuple):
    """The objects that exist at a moment."""

    items: list[Object]
    version: str
    """The resource version, from which later changes can be watched."""


class WatchEndedError(Exception):
    """An error after which objects have to be listed again, as changes may have been missed."""


class KubernetesApi:
    """A client that retries calls while the server is unavailable, and explains refusals."""

    def __init__(self) -> None:
        """Creates a client for the cluster in which this process runs, or of KUBECONFIG.

        Raises:
          ConfigError: this process does not run in a cluster, and no kubeconfig describes one.
        """
        configuration = client.Configuration()
        self.namespace = configure(configuration)
        """The namespace of all objects: the namespace of this pod or of the kubeconfig."""
        # `_call` retries for some time instead, as urllib3 can only limit the number of attempts.
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
        """Creates an object, unless an earlier attempt of this call has already created it."""
        try:
            self._call("create", kind, body=body)
        except _ExistsError:
            return

    def get_pod(self, name: str) -> Object | None:
        """Returns a pod, or None if the pod does not exist."""
        try:
            return self._call("get", ResourceKind.POD, name=name)
        except _NotFoundError:
            return None

    def list(self, kind: ResourceKind, selector: str) -> Listing:
        """Returns all objects of a kind whose labels match a selector."""
        response = self._call("list", kind, label_selector=selector)
        return Listing(response["items"], response["metadata"]["resourceVersion"])

    def delete(self, kind: ResourceKind, name: str) -> None:
        """Deletes an object and its dependents, if it exists."""
        try:
            self._call("delete", kind, name=name, propagation_policy="Background")
        except _NotFoundError:
            return

    def patch_job(self, name: str, changes: Object) -> None:
        """Changes fields of a Job, if it exists."""
        try:
            self._call("patch", ResourceKind.JOB, name=name, body=changes)
        except _NotFoundError:
            return

    def watch_pods(self, selector: str, version: str) -> Iterator[tuple[str, Object]]:
        """Yields the changes of pods whose labels match a selector, for `WATCH_SECONDS`.

        Args:
          version: the resource version from which changes are yielded.

        Yields:
          `ADDED`, `MODIFIED` or `DELETED`, and the pod after the change.

        Raises:
          ConfigError: the account may not watch pods, or Kubernetes refuses the request.
          WatchEndedError: the connection broke, or the version is too old.
        """
        # With this type, the client returns dictionaries.
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
        """Yields the lines of a container's log, each with its time.

        The client has two methods for logs, which are not used. `read_namespaced_pod_log` has no
        `sinceTime`, which is needed to resume after a broken connection. `Watch` fails at a
        character that is split between two chunks, and loses a last line without a line break.

        Args:
          since: the time of the first line to read, in RFC 3339, or None to read all lines.
          follow: whether to wait for further lines while the container runs.

        Raises:
          ConfigError: the account may not read logs.
          ApiException, HTTPError, HTTPException, OSError: the log cannot be read, or cannot be read
            to its end.
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
        """Calls a method of the client, with retries, and returns the JSON of the response."""
        deadline = time.monotonic() + RETRY_SECONDS
        has_warned = False
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
                reason = "the response is not JSON"
            if time.monotonic() > deadline:
                raise TrainingError(
                    f"the Kubernetes API at {self._client.configuration.host} has not responded"
                    f" for {RETRY_SECONDS:g} s ({reason}); check the cluster."
                )
            if not has_warned:
                logger.warning("The Kubernetes API does not respond (%s); retrying.", reason)
            has_warned = True
            time.sleep(_PAUSE_SECONDS)

    def _explain(self, error: ApiException, action: str, is_named: bool = False) -> Exception:
        """Returns the error for a response that a retry would not change."""
        message = _message(error)
        if error.status == 404 and is_named:
            return _NotFoundError(message)
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
        """Returns the message for an account that lacks a right."""
        is_in_manifest = user == _MANIFEST_ACCOUNT.format(self.namespace)
        account = user.rpartition(":")[2]
        change = "" if is_in_manifest else f"; first make {account} the subject in this file"
        return (
            f"{user} may not {action} in namespace {self.namespace}; a role with the rights that "
            f"the trainer needs is in {RBAC_MANIFEST}; apply this file with "
            f"`kubectl apply --namespace {self.namespace} --filename {RBAC_MANIFEST}`{change}."
        )


class _NotFoundError(Exception):
    """An error for an object that does not exist."""


class _ExistsError(Exception):
    """An error for an object that exists already."""


def _exists(error: ApiException) -> bool:
    """Returns whether the server refuses to create an object because it exists."""
    return error.status == 409 and _status_of(error).get("reason") == "AlreadyExists"


def _message(error: ApiException) -> str:
    """Returns the server's message, or the standard words for its HTTP status."""
    return str(_status_of(error).get("message") or error.reason)


def _status_of(error: ApiException) -> Object:
    """Returns the Status object in a response, or an empty dictionary for a proxy's error."""
    try:
        body = json.loads(error.body)
    except (ValueError, TypeError):
        return {}
    return body if isinstance(body, dict) else {}


_NAMESPACE_FILE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def configure(configuration: client.Configuration) -> str:
    """Sets the server and the credentials.

    Returns:
      The namespace of this pod or of the kubeconfig.

    Raises:
      ConfigError: this process does not run in a cluster, and no kubeconfig describes one.
    """
    try:
        if os.environ.get("KUBERNETES_SERVICE_HOST"):
            config.load_incluster_config(client_configuration=configuration)
            configuration.proxy = None  # The server is in the same cluster, without a proxy.
            return _NAMESPACE_FILE.read_text().strip()
        # The client reads KUBECONFIG on import, which may be before it is set.
        file = os.environ.get("KUBECONFIG") or None
        config.load_kube_config(file, client_configuration=configuration)
        _, context = config.list_kube_config_contexts(file)
        return context["context"].get("namespace") or "default"
    except (config.ConfigException, yaml.YAMLError, OSError) as error:
        raise ConfigError(
            "`train.cluster.launcher` is `kubernetes`, but this process does not run in a cluster,"
            f" and KUBECONFIG does not describe a cluster ({str(error).rstrip('.')}); compile the"
            f" pipeline with `{typed_kubeflow_program()} compile`, or set `train.cluster.launcher:"
            " local`."
        ) from None
