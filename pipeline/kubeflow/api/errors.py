"""The connection to Kubeflow Pipelines, and a readable sentence for each of its errors."""

from __future__ import annotations

import contextlib
import io
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    MaxRetryError,
    NameResolutionError,
    NewConnectionError,
    ReadTimeoutError,
    SSLError,
)

from pipeline.config.sections.kubeflow import KubeflowSettings
from trainer_module.errors import ConfigError, InternalError, TryLaterError, shorten

if TYPE_CHECKING:
    from kfp_server_api.exceptions import ApiException

TOKEN_VARIABLE = "SCOPELINE_KFP_TOKEN"  # noqa: S105 - the name of the variable, not its value
"""The environment variable with a token for the API."""
ENDPOINT_VARIABLE = "KF_PIPELINES_ENDPOINT"
"""The environment variable with the address of the API, as for kfp's own client."""

AUTHORITIES_VARIABLE = "SSL_CERT_FILE"
"""The environment variable with a file of certificate authorities, as for OpenSSL."""

OLDEST = "2.14"
"""The oldest version of Kubeflow Pipelines that retries steps inside an exit handler. In older
versions, the compiler (argocompiler/container.go) reads only the retry settings of root tasks.
"""

WHERE = (
    f"`kubeflow.endpoint`, or the variable {ENDPOINT_VARIABLE}, names the API of Kubeflow "
    "Pipelines, such as http://localhost:8888 of a port-forward"
)
"""The advice for a wrong or unreachable endpoint."""
_BUSY = (429, 502, 503, 504)
_MESSAGE_KEYS = ("message", "error_message", "error")
_MESSAGE_CHARACTERS = 300
"""The maximum length of a server's message in an error."""


class UnavailableError(TryLaterError):
    """An API that does not respond now, but may respond later."""


class ServerFailedError(InternalError):
    """A response with status 500: the API is broken, or its database is temporarily unreachable."""


class NotFoundError(ConfigError):
    """A response with status 404: the requested object does not exist."""


class ConflictError(ConfigError):
    """A response with status 409: an object with this name exists already."""


@contextmanager
def translated_errors(endpoint: str, action: str) -> Iterator[None]:
    """Translates the exceptions of a call into readable errors.

    Args:
      endpoint: the address without credentials.
      action: the action of the call as an infinitive, such as `list runs`.

    Raises:
      UnavailableError: there is no response, or a gateway reports that the API is busy.
      NotFoundError: status 404.
      ConflictError: status 409.
      ConfigError: the request is refused, or the response is not from the API.
      InternalError: the server failed.
    """
    # The import is here, because the import takes a third of a second.
    from kfp_server_api.exceptions import ApiException

    try:
        yield
    except ApiException as error:
        raise _from_status(endpoint, action, error) from None
    except urllib3.exceptions.HTTPError as error:
        reason = _reason(error)
        raise UnavailableError(
            f"{endpoint}: Kubeflow Pipelines does not answer ({reason}); {WHERE}"
        ) from None
    except (ValueError, TypeError, AttributeError) as error:
        # kfp's models raise these errors if the response has another form.
        raise InternalError(
            f"{endpoint}: cannot {action}: the answer is not that of Kubeflow Pipelines {OLDEST} "
            f"or newer ({_shorten(str(error))})"
        ) from None


def check_json(endpoint: str, content_type: str | None) -> None:
    """Raises ConfigError for a response with status 200 that is not JSON."""
    kind = content_type or ""
    if "json" not in kind:
        raise ConfigError(
            f"{endpoint}: returned a web page ({kind or 'of no type'}) instead of JSON: the page "
            f"may be a log-in, for which {TOKEN_VARIABLE} takes a token, or the user interface; "
            f"{WHERE}"
        )


def _from_status(endpoint: str, action: str, error: ApiException) -> ConfigError | InternalError:
    """Returns the error for a response that is not a success."""
    status, message = error.status, message_of(error.body)
    detail = f": {message}" if message else ""
    response = f"({status} {error.reason}){detail}"
    if status in _BUSY:
        return UnavailableError(f"{endpoint}: cannot {action} now {response}")
    if status == 401:
        return ConfigError(
            f"{endpoint}: the authentication failed (401){detail}; {TOKEN_VARIABLE} takes a token "
            "that is valid there"
        )
    if status == 403:
        return ConfigError(f"{endpoint}: you may not {action} (403){detail}")
    if status == 404:
        return NotFoundError(f"{endpoint}: cannot {action}: it was not found (404){detail}")
    if status == 409:
        return ConflictError(f"{endpoint}: cannot {action}: it already exists (409){detail}")
    if 300 <= status < 500:
        return ConfigError(f"{endpoint}: cannot {action} {response}")
    return ServerFailedError(f"{endpoint}: Kubeflow Pipelines failed to {action} {response}")


def message_of(body: str | bytes | None) -> str:
    """Returns the server's message from the body of an error, or an empty string for a web page."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body or ""
    try:
        content = json.loads(text)
    except ValueError:
        return "" if text.lstrip().startswith("<") else _shorten(text)
    if isinstance(content, dict):
        content = next(filter(None, map(content.get, _MESSAGE_KEYS)), "")
    return _shorten(str(content))


def _shorten(text: str) -> str:
    """Returns the first line that is not empty, cut to `_MESSAGE_CHARACTERS`."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return shorten(line, _MESSAGE_CHARACTERS)


def _reason(error: urllib3.exceptions.HTTPError) -> str:
    """Returns a short reason for a failed connection."""
    cause = error.reason if isinstance(error, MaxRetryError) else error
    if isinstance(cause, NameResolutionError):
        return "no such host"
    if isinstance(cause, NewConnectionError) and isinstance(cause.__cause__, OSError):
        return (cause.__cause__.strerror or "no connection").lower()
    if isinstance(cause, ConnectTimeoutError):
        return "no connection in time"
    if isinstance(cause, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(cause):
        return (
            f"the certificate is not trusted; {AUTHORITIES_VARIABLE} names the file of authorities"
        )
    if isinstance(cause, ReadTimeoutError):
        return "no answer in time"
    return _shorten(str(cause)) or type(cause).__name__


CONNECT_SECONDS, READ_SECONDS = 3, 30
"""The time limits of one attempt to connect and to read; urllib3 makes several attempts."""
_POD_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def find_api(settings: KubeflowSettings) -> tuple[Any, Any]:
    """Returns kfp's client, with its endpoint and credentials; makes no call.

    Args:
      settings: the endpoint; default: from the environment, the cluster or kubectl's file.

    Returns:
      The client, and the connection that makes its calls.

    Raises:
      ConfigError: no endpoint is configured, or the token is malformed.
    """
    # The import is here, because these imports take a second and a half.
    import kfp_server_api
    from kfp.client import Client
    from kfp.client.set_volume_credentials import ServiceAccountTokenVolumeCredentials

    class QuietClient(Client):
        """A client without the health check at construction, which would retry and print."""

        def get_kfp_healthz(self, sleep_duration: int = 0) -> Any:
            return kfp_server_api.V2beta1GetHealthzResponse(multi_user=False)

    endpoint = settings.endpoint or os.environ.get(ENDPOINT_VARIABLE) or None
    in_pod = Path(os.environ.get("KF_PIPELINES_SA_TOKEN_PATH", _POD_TOKEN)).is_file()
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        client = QuietClient(
            host=endpoint,
            existing_token=_token(),
            ssl_ca_cert=os.environ.get(AUTHORITIES_VARIABLE),
            credentials=ServiceAccountTokenVolumeCredentials() if in_pod else None,
        )
    connection = client.runs.run_service_get_run.__self__.api_client
    if endpoint is None and connection.configuration.host == kfp_server_api.Configuration().host:
        raise ConfigError(
            "kubeflow.endpoint: the address of Kubeflow Pipelines is unknown: set this key or "
            f"the variable {ENDPOINT_VARIABLE}, for example to http://localhost:8888 of a "
            "port-forward. Inside the cluster, and with a configured kubectl, neither is needed"
        )
    send = connection.request

    def call_within_limits(*values: Any, **options: Any) -> Any:
        return send(*values, **options | {"_request_timeout": (CONNECT_SECONDS, READ_SECONDS)})

    # kfp's client has no timeouts: it would wait forever for a server that does not respond.
    connection.request = call_within_limits
    return client, connection


def _token() -> str | None:
    """Returns the token from the environment.

    A malformed token raises an error here, as the HTTP library's error would show the token.
    """
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(f"{TOKEN_VARIABLE}: this is not a token: a token has no spaces")
    return token or None


def user_namespace(settings: KubeflowSettings) -> str:
    """Returns the user's namespace on a multi-user installation.

    Raises:
      ConfigError: no namespace is configured.
    """
    if settings.namespace is not None:
        return settings.namespace
    if _POD_NAMESPACE.is_file():
        return _POD_NAMESPACE.read_text().strip()
    raise ConfigError(
        "kubeflow.namespace: this installation of Kubeflow Pipelines has a namespace for each "
        "user; give the name of your namespace"
    )
