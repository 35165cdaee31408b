"""Scopeline in Python: its commands as functions for notebooks and programs.

`init`, `plan`, `run` and `serve` call the functions of the commands in a child process, so that the
TensorFlow, the event loop and the signal handlers of the program do not matter. `load_model` loads
a pushed version into this process. `python -m scopeline` runs the command line.

Example:
  config = scopeline.init("customers.csv", label="churned")
  result = scopeline.run(config)
  scopeline.load_model(config).predict([{"age": 41, "plan": "gold"}])
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

# Modules that take long to import are imported by the functions.
from pipeline.python.model import Model
from pipeline.python.results import Plan, RunFailedError, RunResult, result_of
from pipeline.python.server import Server
from trainer_module.errors import ConfigError, ScopelineError

__all__ = [
    "Model",
    "Plan",
    "RunFailedError",
    "RunResult",
    "ScopelineError",
    "Server",
    "init",
    "load_model",
    "plan",
    "run",
    "serve",
]

Settings = Iterable[str] | Mapping[str, Any]
"""Overrides of a config: `{"train.epochs": 3}`, or `["train.epochs=3"]` as on the command line."""
FilePath = str | os.PathLike[str]
_OUTPUT = "output"
_MAX_PORT = 65535


def init(
    data: FilePath, label: str | None = None, *, folder: FilePath = ".", force: bool = False
) -> Path:
    """Writes a config for data, as `scopeline init` does, and returns its path.

    Args:
      data: a file, folder or glob of the data.
      label: the column to predict, or None for the likeliest.
      folder: the folder in which to write.
      force: whether to replace an existing config.

    Raises:
      ScopelineError: the data is unusable, or a config exists.
    """
    from pipeline.cli.init import init as command
    from pipeline.first_config.folder import CONFIG

    _call(command, os.fspath(data), label, Path(folder), None, Path(_OUTPUT), force)
    return Path(folder) / CONFIG


def plan(config: FilePath, *, set: Settings = (), output: FilePath = _OUTPUT) -> Plan:
    """Returns what a run would do, as `scopeline plan` prints it. Nothing runs.

    Args:
      config: the path of a config.
      set: overrides of the config, such as `{"train.epochs": 3}`.
      output: the output folder.

    Raises:
      ScopelineError: the config or the data is unusable.
    """
    from pipeline.cli.run import plan as command

    lines: list[str] = []
    overrides = _overrides(set)
    arguments = (Path(config), overrides, Path(output), False)
    with _named(config, overrides, output):
        _call(command, *arguments, on_line=lines.append)
    return Plan("".join(lines))


def run(
    config: FilePath,
    *,
    set: Settings = (),
    output: FilePath = _OUTPUT,
    force: bool = False,
    progress: bool = True,
) -> RunResult:
    """Runs a pipeline from the data to a pushed model, as `scopeline run` does.

    A model that is not pushed is a result, too: `verdict` and `reason` say why. If nothing has
    changed since the last run, the result is that of the last run.

    Args:
      config: the path of a config.
      set: overrides of the config, such as `{"train.epochs": 3}`.
      output: the output folder.
      force: whether to run even if nothing has changed.
      progress: whether to print a line per component while the run is in progress.

    Raises:
      RunFailedError: a component failed, or the data is unusable; `result` has the report.
      ScopelineError: the run did not begin, for example as the config is unusable.
      KeyboardInterrupt: Ctrl-C or the kernel's interrupt ended the run.
    """
    from pipeline.cli.run import run_file
    from pipeline.run_context import RunRequest

    overrides = _overrides(set)
    arguments = (Path(config), overrides, Path(output), False, RunRequest(force=force))
    on_line = _print if progress else _ignore
    with _named(config, overrides, output):
        return result_of(_call(run_file, *arguments, on_line=on_line))


def load_model(
    source: FilePath,
    *,
    version: int | None = None,
    variant: str | None = None,
    set: Settings = (),
    output: FilePath = _OUTPUT,
) -> Model:
    """Loads a pushed version into this process. TensorFlow may be imported before or not.

    Args:
      source: the path of a config, or the folder of a version or of versions.
      version: the number of a version of the config, or None for the newest not withdrawn.
      variant: a variant of the version, such as `int8`.
      set: overrides of the config.
      output: the output folder of the config.

    Raises:
      ScopelineError: there is no such version or variant, or its files are damaged.
    """
    from components.serving import model as serving
    from pipeline.cli.options import load_here
    from pipeline.cli.predict import chosen_model, series_keys
    from pipeline.python.model import TENSORFLOW_VARIABLES
    from pipeline.python.options import in_python, unchanged_environment

    config, model = _config_or_model(source)
    overrides = _overrides(set)
    unchanged = unchanged_environment(TENSORFLOW_VARIABLES)
    with in_python(), unchanged, _named(config, overrides, output):
        loaded = load_here(config, overrides) if config else None
        chosen = chosen_model(loaded, Path(output), model, version, variant)
        serving.import_tensorflow()
        others = [*(loaded.features if loaded else ()), *series_keys(chosen)]
        return Model(serving.load_model(chosen.folder, variant), chosen, frozenset(others))


def serve(
    source: FilePath,
    *,
    variant: str | None = None,
    set: Settings = (),
    output: FilePath = _OUTPUT,
    port: int = 0,
) -> Server:
    """Serves a model on this machine, as `scopeline serve` does, until `stop` is called.

    The server ends with this program. In a `with` block, it ends with the block.

    Args:
      source: the path of a config, or the folder of a version or of versions.
      variant: a variant of the version, such as `int8`.
      set: overrides of the config.
      output: the output folder of the config.
      port: the port, or 0 for a free port.

    Raises:
      ScopelineError: there is no such version or variant, or the port is in use.

    Example:
      with scopeline.serve("config.yaml") as server:
          server.predict([{"age": 41, "plan": "gold"}])
    """
    from pipeline.python.options import in_python

    if not isinstance(port, int) or not 0 <= port <= _MAX_PORT:
        raise ConfigError(f"port={port!r}: expected a number from 0 to {_MAX_PORT}.")
    config, model = _config_or_model(source)
    overrides = _overrides(set)
    with in_python(), _named(config, overrides, output):
        return Server((config, overrides, Path(output), model, variant, port))


def _config_or_model(source: FilePath) -> tuple[Path | None, Path | None]:
    """Returns the path of a config or the folder of a model; the other value is None.

    Raises:
      ConfigError: the source is in an object store.
    """
    from components.example_gen.paths import is_remote
    from components.serving.versions import remote_error
    from pipeline.python.options import in_python

    if is_remote(os.fspath(source)):
        with in_python():
            raise remote_error(os.fspath(source))
    path = Path(source)
    is_config = path.suffix in (".yaml", ".yml") or path.is_file()
    return (path, None) if is_config else (None, path)


@contextmanager
def _named(config: FilePath | None, overrides: list[str], output: FilePath) -> Iterator[None]:
    """Names the config in the commands that messages of a block propose."""
    from pipeline.cli.pipeline_options import options_of
    from pipeline.python.options import unchanged_environment
    from trainer_module.typed_words import OPTIONS_VARIABLE, remember_options

    typed = {"--config": config, "--set": overrides}
    if os.fspath(output) != _OUTPUT:
        typed["--output DIR"] = output
    with unchanged_environment([OPTIONS_VARIABLE]):
        remember_options(None if config is None else options_of(typed))
        yield


def _overrides(settings: Settings) -> list[str]:
    if isinstance(settings, Mapping):
        return [f"{key}={json.dumps(value, default=_plain)}" for key, value in settings.items()]
    return [settings] if isinstance(settings, str) else list(settings)


def _plain(value: Any) -> Any:
    """Returns a path or a number of NumPy as a value of JSON."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    raise ConfigError(
        f"set: {value!r} is of the type {type(value).__name__}, expected a number, text, a list, a"
        " dict or None."
    )


def _print(line: str) -> None:
    print(line, end="", flush=True)  # noqa: T201


def _ignore(line: str) -> None:
    del line


def _call(
    function: Callable[..., Any], *arguments: Any, on_line: Callable[[str], None] = _print
) -> Any:
    """Returns the result of a command's function, with the names of Python in its messages."""
    from pipeline.python.command_process import call
    from pipeline.python.options import in_python, translate

    with in_python():
        return call(function, *arguments, on_line=lambda line: on_line(translate(line)))


def main() -> None:
    """Runs the command line."""
    # The import is here, because only the command line needs it.
    from scopeline_programs import scopeline

    scopeline()


if __name__ == "__main__":
    main()
