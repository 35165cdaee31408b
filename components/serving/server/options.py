"""The options of the server, and their checks."""

from __future__ import annotations

import difflib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from components.serving.settings import LogOptions, OnUnreadable
from trainer_module.errors import ConfigError
from trainer_module.export.interface import read_interface
from trainer_module.features.pixels import SERVED_PIXELS

KEY_VARIABLE = "SCOPELINE_API_KEY"
"""The environment variable with the API key that clients must send."""
MIN_BODIES_IN_MEMORY = 5
"""The lowest memory limit for all requests, as a multiple of the largest body."""
LOCAL_HOSTS = ("127.0.0.1", "::1", "localhost")
"""The names and addresses that only this machine can reach."""
_MIN_SIMILARITY = 0.8
"""The similarity at which two names count as spellings of the same column."""


@dataclass(frozen=True)
class ServeOptions:
    """The options of a server."""

    name: str
    """The name of the model in the paths of requests."""
    folder: Path
    """The folder that contains the versions."""
    host: str = "127.0.0.1"
    port: int = 8501
    key: str = ""
    """The API key that clients have to send, or an empty string if no key is needed."""
    certificate: Path | None = None
    private_key: Path | None = None
    waits: bool = False
    """Whether the server may start before the first version is pushed."""
    version: int | None = None
    """The only version that is served, even if it was withdrawn, or None for the newest."""
    variant: str | None = None
    """The variant of each version that predicts in place of its network."""
    transformed: bool = False
    """Whether requests contain the transformed features that the variant takes. The server then
    does not need TensorFlow."""
    workers: int = 1
    """The number of worker processes."""
    max_bytes: int = 64 << 20
    """The size limit of an uncompressed request, and of a response."""
    max_rows: int = 65_536
    """The most rows of a request."""
    max_pixels: int = SERVED_PIXELS
    """The most pixels that a picture may have according to its header."""
    connections: int = 1000
    """The most open connections of each worker process."""
    keep_alive_seconds: int = 75
    """The seconds for which a connection may be idle: longer than the timeouts of load balancers,
    so that the server does not close a connection that a load balancer still uses."""
    memory_bytes: int = 384 << 20
    """The most memory for the requests in progress, per worker process."""
    body_seconds: float = 20.0
    """The seconds within which a whole request has to arrive."""
    answer_seconds: float = 30.0
    """The seconds after which a request fails with a timeout."""
    on_unreadable: OnUnreadable = OnUnreadable.MISSING
    """The treatment of texts that the model cannot parse."""
    log: LogOptions | None = None
    """The options of the request log, or None for no log."""
    page: bool = True
    """Whether the server has a page at `/`."""

    @property
    def scheme(self) -> str:
        """The scheme of the server's address."""
        return "https" if self.certificate else "http"


def check_options(options: ServeOptions, is_insecure: bool) -> None:
    """Raises ConfigError for missing authentication, missing files or inconsistent options."""
    if options.host not in LOCAL_HOSTS and not options.key and not is_insecure:
        raise ConfigError(
            f"--host {options.host} lets everybody in the network query the model: set"
            f" {KEY_VARIABLE}, or add --insecure if a proxy or firewall protects the server."
        )
    files = {"--tls-cert": options.certificate, "--tls-key": options.private_key}
    for option, path in files.items():
        if path is not None and not path.is_file():
            raise ConfigError(f"{option} {path}: the file does not exist.")
    if (options.certificate is None) != (options.private_key is None):
        raise ConfigError("--tls-cert and --tls-key go together: give both.")
    if options.transformed and options.variant is None:
        raise ConfigError("--transformed serves a variant: add --variant NAME.")
    if options.transformed and options.log is not None:
        raise ConfigError(
            "--log-requests logs the columns of the training data, but requests with --transformed"
            " have transformed features: remove one of the two options."
        )
    min_bytes = MIN_BODIES_IN_MEMORY * options.max_bytes
    if options.memory_bytes < min_bytes:
        raise ConfigError(
            f"--memory-megabytes {options.memory_bytes >> 20} is too little for requests of"
            f" {options.max_bytes >> 20} megabytes: expected at least {min_bytes >> 20}."
        )
    if options.log is not None:
        check_log(options.log)


def check_log(options: LogOptions) -> None:
    """Creates the folder of the log, and checks that it is writable.

    Raises:
      ConfigError: the folder is not writable, or the share is not in (0, 1].
    """
    if not 0 < options.sample <= 1:
        raise ConfigError(
            f"--sample {options.sample:g}: expected a share of the requests between 0 and 1, such"
            " as 0.1."
        )
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        # The file has a unique name, as several servers may start at the same time.
        with tempfile.NamedTemporaryFile(dir=options.folder, prefix=".trial-"):
            pass
    except OSError as error:
        raise ConfigError(
            f"--log-requests {options.folder} cannot be written ({error.strerror or error}): give"
            " a folder that you may write."
        ) from None


def check_dropped(options: LogOptions, version: Path | None) -> None:
    """Checks for misspelt columns in `log.drop`, whose values would be logged by mistake.

    Args:
      version: the version with whose columns the names are compared, or None if there is none yet.

    Raises:
      ConfigError: the model has no column of a given name, but a column with a similar name.
    """
    if version is None:
        return
    columns = [column.name for column in read_interface(version).columns]
    for name in sorted(options.dropped.difference(columns)):
        if near := difflib.get_close_matches(name, columns, n=1, cutoff=_MIN_SIMILARITY):
            raise ConfigError(
                f"log.drop: the model has no column {name!r}; did you mean {near[0]!r}?"
            )
