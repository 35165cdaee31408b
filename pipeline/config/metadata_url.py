"""Parses the URL in the config's key `metadata`, without importing ML Metadata."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from pipeline.config.issues import Issue, near_match

SCHEME = "mysql"
SERVICE_SCHEME = "grpc"
DEFAULT_PORT = 3306
PASSWORD_VARIABLE = "SCOPELINE_METADATA_PASSWORD"  # noqa: S105 - the name of a variable
SERVICE_EXAMPLE = f"{SERVICE_SCHEME}://host:8080"
EXAMPLE = f"{SCHEME}://user@host:{DEFAULT_PORT}/database"


@dataclass(frozen=True)
class MetadataServer:
    """A database of a MySQL server, and its user; an environment variable has the password."""

    host: str
    port: int
    user: str
    database: str

    @property
    def password(self) -> str:
        """The user's password, or an empty string if the environment variable is not set."""
        return os.environ.get(PASSWORD_VARIABLE, "")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SCHEME}://{self.user}@{host}:{self.port}/{self.database}"


@dataclass(frozen=True)
class MetadataService:
    """The gRPC service of ML Metadata, as in Kubeflow, which needs no password."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{SERVICE_SCHEME}://{host}:{self.port}"


def parse_metadata_url(url: str) -> MetadataServer | MetadataService:
    """Parses the URL of a metadata server or service.

    Raises:
      ValueError: the URL is invalid; the message contains the URL without its password, and an
        example of a valid URL.
    """
    masked, holds_password = _split_password(url)
    masked = repr(masked)
    scheme, separator, _ = url.partition("://")
    if not separator:
        raise ValueError(
            f"found {masked}; expected the URL of a server, such as {EXAMPLE}, or null for a "
            "SQLite file"
        )
    if scheme == SERVICE_SCHEME:
        return _parse_service(url, masked)
    if scheme != SCHEME:
        raise ValueError(
            f"found {masked} with the unsupported scheme {scheme!r}; "
            f"{near_match(scheme, [SCHEME, SERVICE_SCHEME])}"
        )
    if holds_password:
        raise ValueError(
            f"found a password in {masked}; remove the password, and set the environment variable "
            f"{PASSWORD_VARIABLE}"
        )
    try:
        parts = urlsplit(url)
        port = DEFAULT_PORT if parts.port is None else parts.port
    except ValueError as error:
        raise ValueError(f"found {masked}; {error}; expected {EXAMPLE}") from None
    database = unquote(parts.path.strip("/"))
    for part, name in ((parts.username, "user"), (parts.hostname, "host"), (database, "database")):
        if not part:
            raise ValueError(f"found {masked} without a {name}; expected {EXAMPLE}")
    if parts.query or parts.fragment or "/" in database:
        raise ValueError(f"found {masked} with text after the database; expected {EXAMPLE}")
    return MetadataServer(parts.hostname or "", port, unquote(parts.username or ""), database)


def _parse_service(url: str, masked: str) -> MetadataService:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ValueError(f"found {masked}; {error}; expected {SERVICE_EXAMPLE}") from None
    if not host or port is None or parts.path.strip("/") or parts.username or parts.query:
        raise ValueError(f"found {masked}; expected host and port, as in {SERVICE_EXAMPLE}")
    return MetadataService(host, port)


def _split_password(url: str) -> tuple[str, bool]:
    """Returns a URL without its password, and whether it contained a password.

    The password is the text between the first `:` and the last `@`, even if it contains characters
    that a URL does not allow.
    """
    scheme, separator, rest = url.partition("://") if "://" in url else ("", "", url)
    before, at, after = rest.rpartition("@")
    user, colon, _ = before.partition(":")
    return f"{scheme}{separator}{user}{colon and ':***'}{at}{after}", bool(colon)


def metadata_names_a_database(metadata: str | None) -> Iterator[Issue]:
    """Checks that the URL names user, host and database, and contains no password."""
    if metadata is not None:
        try:
            parse_metadata_url(metadata)
        except ValueError as error:
            yield Issue("metadata", str(error))


METADATA_RULES = (metadata_names_a_database,)
