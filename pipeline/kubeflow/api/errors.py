"""The errors of Kubeflow's API, each with one sentence for people."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
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
    """An address for people, without the credentials that it may hold."""
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
    """The sentence for an answer that is not a success."""
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
    """The server's own words in an error's body, in short; empty for a web page."""
    text = body.decode(errors="replace") if isinstance(body, bytes) else body or ""
    try:
        found = json.loads(text)
    except ValueError:
        return "" if text.lstrip().startswith("<") else _shorten(text)
    if isinstance(found, dict):
        found = found.get("message") or found.get("error_message") or found.get("error") or ""
    return _shorten(str(found))


def _shorten(text: str) -> str:
    """The first line that is not empty, cut to `_MESSAGE_CHARACTERS`."""
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
