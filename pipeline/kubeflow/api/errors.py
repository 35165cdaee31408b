"""Where Kubeflow Pipelines is, and its errors, each with one sentence for people."""

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
from urllib.parse import urlsplit, urlunsplit

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

TOKEN_VARIABLE = "SCOPELINE_KFP_TOKEN"  # noqa: S105 - its name, not its value
"""The environment variable with a token that the API accepts."""
ENDPOINT_VARIABLE = "KF_PIPELINES_ENDPOINT"
"""The environment variable that names the API, as for kfp's own client."""

AUTHORITIES_VARIABLE = "SSL_CERT_FILE"
"""The environment variable with a file of certificate authorities, as for OpenSSL."""

OLDEST = "2.14"
"""The oldest Kubeflow Pipelines that tries steps inside an exit handler again: before, its compiler
(argocompiler/container.go) looks up the retries of the root's tasks alone."""

WHERE = (
    f"`kubeflow.endpoint`, or the variable {ENDPOINT_VARIABLE}, names the API of Kubeflow "
    "Pipelines, such as http://localhost:8888 of a port-forward"
)
"""What to check if something else answers, or nothing does."""
_BUSY = (429, 502, 503, 504)
_MESSAGE_CHARACTERS = 300
"""The most that is shown of a server's message."""


class UnavailableError(TryLaterError):
    """The API does not answer now; later it may."""


class ServerFailedError(InternalError):
    """The API answered with 500: it is broken, or its database is away for a moment."""


class NotFoundError(ConfigError):
    """What was asked for is not there."""


class ConflictError(ConfigError):
    """Something of that name is there already."""


def shown_endpoint(url: str) -> str:
    """Returns an address for people, without the credentials that it may hold."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


@contextmanager
def explained(endpoint: str, action: str) -> Iterator[None]:
    """Turns what a call raises into a sentence.

    Args:
      endpoint: the address, as people may see it.
      action: what the call does, as an infinitive: `list runs`.

    Raises:
      UnavailableError: nothing answers, or something in between says that it is busy.
      NotFoundError: 404.
      ConflictError: 409.
      ConfigError: the request is refused, or something else than the API answers.
      InternalError: the server failed.
    """
    # Whoever makes calls has imported it before, which takes a third of a second.
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
        # What kfp's models raise for an answer of another shape.
        raise InternalError(
            f"{endpoint}: cannot {action}: the answer is not what Kubeflow Pipelines {OLDEST} or "
            f"newer gives ({_shorten(str(error))})"
        ) from None


def check_json(endpoint: str, content_type: str | None) -> None:
    """Refuses what is no answer of the API, although it came with status 200."""
    kind = content_type or ""
    if "json" not in kind:
        raise ConfigError(
            f"{endpoint}: answered with a page ({kind or 'of no type'}), not as an API: perhaps "
            f"that of a log-in, for which {TOKEN_VARIABLE} takes a token, or the user interface's; "
            f"{WHERE}"
        )


def _from_status(endpoint: str, action: str, error: ApiException) -> ConfigError | InternalError:
    """Returns the sentence for an answer that is not a success."""
    status, message = error.status, message_of(error.body)
    detail = f": {message}" if message else ""
    answered = f"({status} {error.reason}){detail}"
    if status in _BUSY:
        return UnavailableError(f"{endpoint}: cannot {action} now {answered}")
    if status == 401:
        return ConfigError(
            f"{endpoint}: does not accept who you are (401){detail}; "
            f"{TOKEN_VARIABLE} takes a token that is valid there"
        )
    if status == 403:
        return ConfigError(f"{endpoint}: you may not {action} (403){detail}")
    if status == 404:
        return NotFoundError(f"{endpoint}: cannot {action}: there is no such thing (404){detail}")
    if status == 409:
        return ConflictError(f"{endpoint}: cannot {action}: there is one already (409){detail}")
    if 300 <= status < 500:
        return ConfigError(f"{endpoint}: cannot {action} {answered}")
    return ServerFailedError(f"{endpoint}: Kubeflow Pipelines failed to {action} {answered}")


def message_of(body: str | bytes | None) -> str:
    """Returns the server's own words in an error's body, in short; empty for a web page."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body or ""
    try:
        found = json.loads(text)
    except ValueError:
        return "" if text.lstrip().startswith("<") else _shorten(text)
    if isinstance(found, dict):
        found = found.get("message") or found.get("error_message") or found.get("error") or ""
    return _shorten(str(found))


def _shorten(text: str) -> str:
    """Returns the first line that is not empty, cut to `_MESSAGE_CHARACTERS`."""
    line = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return shorten(line, _MESSAGE_CHARACTERS)


def _reason(error: urllib3.exceptions.HTTPError) -> str:
    """Why there is no connection, in a few words."""
    cause = error.reason if isinstance(error, MaxRetryError) else error
    if isinstance(cause, NameResolutionError):
        return "no such host"
    if isinstance(cause, NewConnectionError) and isinstance(cause.__cause__, OSError):
        return (cause.__cause__.strerror or "no connection").lower()
    if isinstance(cause, ConnectTimeoutError):
        return "no connection in time"
    if isinstance(cause, SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(cause):
        return f"its certificate is not trusted; {AUTHORITIES_VARIABLE} names the authorities' file"
    if isinstance(cause, ReadTimeoutError):
        return "no answer in time"
    return _shorten(str(cause)) or type(cause).__name__


CONNECT_SECONDS, READ_SECONDS = 3, 30
"""Limits of one attempt to connect and to read; urllib3 makes several attempts."""
_POD_TOKEN = Path("/var/run/secrets/kubeflow/pipelines/token")
_POD_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def find_api(settings: KubeflowSettings) -> tuple[Any, Any]:
    """Kfp's client, with the endpoint and the credentials that it finds; makes no call.

    Args:
      settings: name the endpoint, or leave it to the environment, the cluster or kubectl's file.

    Returns:
      The client, and the connection that makes its calls.

    Raises:
      ConfigError: nothing says where the API is, or the token is not one.
    """
    # Imported where it is asked for: it takes a second and a half.
    import kfp_server_api
    from kfp.client import Client
    from kfp.client.set_volume_credentials import ServiceAccountTokenVolumeCredentials

    class QuietClient(Client):
        """Asks for no health when it is made, which would retry for half a minute and print."""

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
            "kubeflow.endpoint: nothing says where Kubeflow Pipelines is: give its address, such "
            f"as http://localhost:8888 of a port-forward, here or as {ENDPOINT_VARIABLE}; inside "
            "the cluster, and where kubectl is set up, it is found without"
        )
    ask = connection.request

    def ask_within_limits(*values: Any, **options: Any) -> Any:
        return ask(*values, **options | {"_request_timeout": (CONNECT_SECONDS, READ_SECONDS)})

    # kfp's client has none, and would wait for ever for what accepts and says nothing.
    connection.request = ask_within_limits
    return client, connection


def _token() -> str | None:
    """Returns the token of the environment.

    Text that cannot be a token is refused here: the HTTP library's error would show it.
    """
    token = os.environ.get(TOKEN_VARIABLE, "").strip()
    if not (token.isascii() and token.isprintable()) or " " in token:
        raise ConfigError(f"{TOKEN_VARIABLE}: this is no token; one has no spaces in it")
    return token or None


def user_namespace(settings: KubeflowSettings) -> str:
    """Returns the user's namespace, where there are several.

    Raises:
      ConfigError: nothing names it.
    """
    if settings.namespace is not None:
        return settings.namespace
    if _POD_NAMESPACE.is_file():
        return _POD_NAMESPACE.read_text().strip()
    raise ConfigError(
        "kubeflow.namespace: this Kubeflow Pipelines has several users, each with a namespace; "
        "name yours"
    )
