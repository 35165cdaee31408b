"""Implements `scopeline serve`: serves a pushed model over HTTP."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import typer

from components.example_gen.paths import is_remote
from components.pusher.variants import find_variant
from components.serving.server.options import (
    KEY_VARIABLE,
    ServeOptions,
    check_dropped,
    check_options,
)
from components.serving.settings import DEFAULT_LIMIT, MEGABYTE, LogOptions, RequestSettings
from components.serving.versions import (
    newest_version,
    remote_error,
    version_number,
    versions_folder,
)
from pipeline.cli.options import (
    DEFAULT_CONFIG,
    OUTPUT,
    OnUnreadableOption,
    OutputOption,
    SetOption,
    VariantOption,
    flag,
    load_here,
)
from pipeline.config.sections.notify import read_secret
from pipeline.config.settings import PipelineConfig
from pipeline.layout import Layout
from trainer_module.errors import ConfigError
from trainer_module.features.pixels import SERVED_PIXELS
from trainer_module.settings import IgnoredFeature


def serve(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Serve this pipeline.",
            show_default="configs/digits.yaml",
        ),
    ] = None,
    overrides: SetOption = [],  # noqa: B006
    output: OutputOption = OUTPUT,
    model: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Serve this version, or the newest in this folder."),
    ] = None,
    variant: VariantOption = None,
    transformed: Annotated[
        bool,
        flag("--transformed", "Serve without TensorFlow, for transformed features."),
    ] = False,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Serve under this name.", show_default="the config's"),
    ] = None,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Listen on this address.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", min=0, max=65535, help="Listen on this port.")
    ] = 8501,
    workers: Annotated[int, typer.Option(metavar="N", min=1, help="Run N server processes.")] = 1,
    connections: Annotated[
        int, typer.Option(metavar="N", min=1, help="Allow N connections per process.")
    ] = ServeOptions.connections,
    keep_alive: Annotated[
        int,
        typer.Option(metavar="SECONDS", min=1, help="Close connections idle for longer."),
    ] = ServeOptions.keep_alive_seconds,
    request_megabytes: Annotated[
        int, typer.Option(metavar="MB", min=1, help="Refuse larger requests.")
    ] = ServeOptions.max_bytes >> 20,
    request_rows: Annotated[
        int, typer.Option(metavar="N", min=1, help="Refuse requests with more rows.")
    ] = ServeOptions.max_rows,
    memory_megabytes: Annotated[
        int, typer.Option(metavar="MB", min=1, help="Limit request memory per process.")
    ] = ServeOptions.memory_bytes >> 20,
    insecure: Annotated[
        bool, flag("--insecure", "Allow a public address without an API key.")
    ] = False,
    certificate: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="Serve HTTPS with this PEM certificate."),
    ] = None,
    private_key: Annotated[
        Path | None,
        typer.Option("--tls-key", metavar="FILE", help="Use this PEM key of the certificate."),
    ] = None,
    log_requests: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Log requests and predictions in this folder."),
    ] = None,
    sample: Annotated[
        float, typer.Option(metavar="SHARE", help="Log this share of the requests.")
    ] = 1.0,
    log_megabytes: Annotated[
        int, typer.Option(metavar="MB", min=1, help="Keep at most this much of the log.")
    ] = DEFAULT_LIMIT,
    on_unreadable: OnUnreadableOption = None,
    max_pixels: Annotated[
        int, typer.Option(metavar="N", min=1, help="Refuse images with more pixels.")
    ] = SERVED_PIXELS,
    no_page: Annotated[bool, flag("--no-page", "Leave out the page at /.")] = False,
) -> None:
    """Serve a pushed model over HTTP.

    The server loads each new version after its push. If SCOPELINE_API_KEY is set, clients must send
    this key.

    Example: scopeline serve --config my.yaml --port 8501

    Exit codes: 0 after SIGTERM or Ctrl-C, 2 the model cannot be served.
    """
    path = config or (None if model else DEFAULT_CONFIG)
    loaded = load_here(path, overrides) if path else None
    served = served_model(loaded, output, model, name)
    if variant is not None and served.first is not None:
        find_variant(served.first, variant)
    log = _request_log(loaded, log_requests, sample, log_megabytes)
    if log is not None:
        check_dropped(log, served.first)
    options = _options_of(served, loaded, variant)
    options = replace(
        options,
        host=host,
        port=port,
        certificate=certificate,
        private_key=private_key,
        waits=model is None,
        transformed=transformed,
        workers=workers,
        max_pixels=max_pixels,
        connections=connections,
        keep_alive_seconds=keep_alive,
        max_bytes=request_megabytes << 20,
        max_rows=request_rows,
        memory_bytes=memory_megabytes << 20,
        on_unreadable=on_unreadable or options.on_unreadable,
        log=log,
        page=not no_page,
    )
    serve_model(options, insecure)


def serve_here(
    config: Path | None,
    overrides: list[str],
    output: Path,
    model: Path | None,
    variant: str | None,
    port: int,
    on_bound: Callable[[tuple[str, str]], None],
) -> None:
    """Serves an existing version on this machine until a signal ends the server.

    Args:
      config: the config, or None to serve `model`.
      overrides: as `--set` of the command.
      model: the folder of a version or of versions, or None for the config's model.
      variant: a variant of the version.
      port: the port, or 0 for a free port.
      on_bound: called with the address and the name of the model when the port is known.

    Raises:
      ConfigError: the model or the variant does not exist, or the port is in use.
    """
    loaded = load_here(config, overrides) if config else None
    served = served_model(loaded, output, model, None)
    if variant is not None and served.first is not None:
        find_variant(served.first, variant)
    options = replace(_options_of(served, loaded, variant), port=port)
    serve_model(options, False, lambda address: on_bound((address, served.name)))


def _options_of(
    served: ServedModel, config: PipelineConfig | None, variant: str | None
) -> ServeOptions:
    """Returns the options that follow from a model and its config."""
    return ServeOptions(
        served.name,
        served.folder,
        version=served.version,
        variant=variant,
        on_unreadable=(config.requests if config else RequestSettings()).on_unreadable,
    )


def _request_log(
    config: PipelineConfig | None, folder: Path | None, sample: float, megabytes: int
) -> LogOptions | None:
    """Returns the settings of the request log, which leaves out the columns that the config
    drops.
    """
    if folder is None:
        if sample != 1:
            raise ConfigError(f"--sample {sample:g} needs a request log: add --log-requests DIR.")
        return None
    dropped = {*config.log.drop, *config.columns_of(IgnoredFeature)} if config else set()
    return LogOptions(folder, sample, megabytes * MEGABYTE, frozenset(dropped))


@dataclass(frozen=True)
class ServedModel:
    """The model that a server serves."""

    name: str
    """The name of the model in the paths of requests."""
    folder: Path
    """The folder that contains the versions."""
    version: int | None = None
    """The only version that is served, or None for the newest."""

    @property
    def first(self) -> Path | None:
        """The version that the server loads first, or None if there is no version yet."""
        if self.version is None:
            return newest_version(self.folder)
        return self.folder / str(self.version)


def served_model(
    config: PipelineConfig | None, output: Path, model: Path | None, name: str | None
) -> ServedModel:
    """Returns the model that the options of a command select.

    Args:
      config: the checked config, or None if the command has no config.
      model: a folder of versions, the folder of one version, or None for the config's model.
      name: the name of the model, or None for the config's name or, without a config, the folder's.

    Raises:
      ConfigError: `model` contains no version, both arguments are None, or the folder is remote.
    """
    if model is not None:
        folder = versions_folder(model)
        served_name = name or (config.name if config else folder.name)
        return ServedModel(served_name, folder, version_number(model))
    if config is None:
        raise ConfigError(
            "--config is missing: give a config, or --model DIR with pushed versions."
        )
    layout = Layout.of(config.name, config.push, output)
    if is_remote(layout.serving):
        raise remote_error(layout.serving)
    return ServedModel(name or config.name, Path(layout.serving))


def serve_model(
    options: ServeOptions, is_insecure: bool, on_bound: Callable[[str], None] | None = None
) -> None:
    """Serves a model until a signal ends the server.

    Args:
      options: the options, without the key.
      is_insecure: whether a public address needs no key.
      on_bound: called with the address when the port is known.

    Raises:
      ConfigError: the address is public and there is no key, a file is missing, or the port is in
        use.
    """
    options = replace(options, key=read_key())
    check_options(options, is_insecure)
    from components.serving.server.processes import serve

    serve(options, on_bound)


def read_key() -> str:
    """Returns the API key from the environment, or an empty string if the variable is not set.

    Raises:
      ConfigError: the variable is set but empty.
    """
    key = read_secret(KEY_VARIABLE)
    if key is None and KEY_VARIABLE in os.environ:
        raise ConfigError(
            f"{KEY_VARIABLE} is set, but empty: set it to the API key, or unset it to serve without"
            " a key."
        )
    return key or ""
