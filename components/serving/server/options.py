"""How a model is served: what the command line says, checked."""

from __future__ import annotations

import difflib
import tempfile
from dataclasses import dataclass
from pathlib import Path

from components.serving.settings import LogOptions, OnUnreadable
from components.serving.versions import newest_version
from trainer_module.errors import ConfigError
from trainer_module.export.interface import read_interface
from trainer_module.features.pixels import SERVED_PIXELS

KEY_VARIABLE = "SCOPELINE_API_KEY"
"""The environment variable with the key that clients have to give."""
MEMORY_OF_BODY = 5
"""The least memory for all requests, in bodies of the largest."""
_LOCAL = ("127.0.0.1", "::1", "localhost")
_NEAR = 0.8
"""Names that are as like as this may be meant for each other."""


@dataclass(frozen=True)
class ServeOptions:
    """What a server is told."""

    name: str
    """Of the model, in paths of requests."""
    folder: Path
    """Of its versions."""
    host: str = "127.0.0.1"
    port: int = 8501
    key: str = ""
    """That clients have to give; empty where none is asked for."""
    certificate: Path | None = None
    private_key: Path | None = None
    waits: bool = False
    """Whether the first version may yet have to be pushed."""
    variant: str | None = None
    """Of each version, that answers in its place."""
    transformed: bool = False
    """Whether requests bring what the variant itself takes, which needs no TensorFlow."""
    workers: int = 1
    """Processes that answer."""
    max_bytes: int = 64 << 20
    """Of a request, unpacked, and of an answer."""
    max_rows: int = 65_536
    """Of a request."""
    max_pixels: int = SERVED_PIXELS
    """Of a picture, by its header."""
    connections: int = 1000
    """Open at once, by each process that answers."""
    keep_alive_seconds: int = 75
    """For which a connection may be idle; longer than load balancers keep theirs."""
    memory_bytes: int = 384 << 20
    """That the requests under way may take together, in each process that answers."""
    body_seconds: float = 20.0
    """In which the whole of a request has to come."""
    answer_seconds: float = 30.0
    """In which it is answered, or given up."""
    on_unreadable: OnUnreadable = OnUnreadable.MISSING
    """What a text of a request does that the model cannot read."""
    log: LogOptions | None = None
    """Where requests are written down, if they are."""

    @property
    def scheme(self) -> str:
        """Of its address."""
        return "https" if self.certificate else "http"


def check_options(options: ServeOptions, is_insecure: bool) -> None:
    """Raises ConfigError for a server that anybody could ask, or files that are not there."""
    if options.host not in _LOCAL and not options.key and not is_insecure:
        raise ConfigError(
            f"--host {options.host} would let anybody ask the model: set {KEY_VARIABLE}, or say"
            " --insecure where something before it keeps them out."
        )
    files = {"--tls-cert": options.certificate, "--tls-key": options.private_key}
    for option, path in files.items():
        if path is not None and not path.is_file():
            raise ConfigError(f"{option} {path}: there is no such file.")
    if (options.certificate is None) != (options.private_key is None):
        raise ConfigError("--tls-cert and --tls-key go together: give both.")
    if options.transformed and options.variant is None:
        raise ConfigError("--transformed is for what a variant takes: add --variant NAME.")
    if options.transformed and options.log is not None:
        raise ConfigError(
            "--log-requests writes the columns of training data, which a server with --transformed"
            " is not given: leave one of them out."
        )
    if options.memory_bytes < MEMORY_OF_BODY * options.max_bytes:
        raise ConfigError(
            f"--memory-megabytes {options.memory_bytes >> 20} is too little for requests of"
            f" {options.max_bytes >> 20} megabytes: right is {MEMORY_OF_BODY} times as much, or"
            " more."
        )
    if options.log is not None:
        check_log(options.log)


def check_log(options: LogOptions) -> None:
    """Makes the folder.

    Raises:
      ConfigError: nothing can be written to it, or the share is none.
    """
    if not 0 < options.sample <= 1:
        raise ConfigError(
            f"--sample {options.sample:g}: right is a share of the requests, such as 0.1."
        )
    try:
        options.folder.mkdir(parents=True, exist_ok=True)
        # Each server has one of its own: others may begin at the same moment.
        with tempfile.NamedTemporaryFile(dir=options.folder, prefix=".trial-"):
            pass
    except OSError as error:
        raise ConfigError(
            f"--log-requests {options.folder} cannot be written ({error.strerror or error}): give"
            " a folder that you may write."
        ) from None


def check_dropped(options: LogOptions, serving: Path) -> None:
    """Refuses a name that may be a misspelt column, which would be written down all the same.

    Args:
      options: of the log.
      serving: the folder of the versions; the newest that was not withdrawn tells the columns.

    Raises:
      ConfigError: a name is close to that of a column, and of no column.
    """
    version = newest_version(serving)
    if version is None:
        return
    columns = [column.name for column in read_interface(version).columns]
    for name in sorted(options.dropped.difference(columns)):
        if near := difflib.get_close_matches(name, columns, n=1, cutoff=_NEAR):
            raise ConfigError(
                f"log.drop: the model asks for no column {name!r}; did you mean {near[0]!r}?"
            )
