"""The options of a command line that name its pipeline, for the commands in messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pipeline.config.issues import may_hold_secrets
from trainer_module.typed_words import remember_options


def remember_pipeline(context: Any) -> None:
    """Stores the options with which other commands act on the same pipeline and output folder.

    Commands without a config, such as `doctor`, change nothing.
    """
    typed = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name)
        # Depending on its version, typer uses click's enum or its own copy, with equal names.
        if source is not None and source.name == "COMMANDLINE":
            typed[_name(parameter)] = context.params[parameter.name]
    if any("--config" in parameter.opts for parameter in context.command.params):
        remember_options(options_of(typed))


def _name(parameter: Any) -> str:
    """Returns an option's longest name, and its metavar if the same name is also used for files."""
    name = str(max(parameter.opts, key=len))
    return f"{name} {parameter.metavar}" if name == "--output" else name


def options_of(typed: Mapping[str, Any]) -> list[str] | None:
    """Returns the options for other commands, or None if they do not name one pipeline.

    Args:
      typed: the values of `--config`, `--model`, `--set` and `--output DIR`, as far as given.
    """
    config = typed.get("--config")
    configs = config if isinstance(config, list | tuple) else [config]
    if len(configs) > 1 or (config is None and "--model" in typed):
        return None
    options = [] if config is None else ["--config", str(configs[0])]
    for override in typed.get("--set", ()):
        options += ["--set", without_secrets(override)]
    output = typed.get("--output DIR")
    return options if output is None else [*options, "--output", str(output)]


def without_secrets(override: str) -> str:
    """Returns a value of `--set`, with `...` in place of a value that may hold secrets."""
    key = override.partition("=")[0]
    return f"{key}=..." if may_hold_secrets(key.split(".")) else override
