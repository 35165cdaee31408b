"""Beam options for the short names of runners, such as `flink`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from components.beam_workers.options import IN_PROCESS_ARGS
from trainer_module.errors import ConfigError, enumerate_names

DIRECT, CONFIG = "direct", "config"
"""The names for this process, and for the runner that the config names."""
_RUNNERS = {
    "flink": "FlinkRunner",
    "spark": "SparkRunner",
    "dataflow": "DataflowRunner",
    "portable": "PortableRunner",
}
_OPTION = "--runner"


def beam_args(runner: str, configured: Sequence[str]) -> list[str]:
    """Returns the options of a Beam pipeline.

    Args:
      runner: `direct` for this process, `config` for the config's own options, or the name of a
        runner, which takes its other options from the config.
      configured: `beam.args` of the config.

    Raises:
      ConfigError: there is no such runner, or the config has no options.
    """
    if runner == DIRECT:
        return list(IN_PROCESS_ARGS)
    if runner == CONFIG:
        if not configured:
            raise ConfigError(
                "--runner config: the config has no `beam.args`; add them to the config, or give "
                "a runner."
            )
        return list(configured)
    if runner not in _RUNNERS:
        known = [DIRECT, *_RUNNERS, CONFIG]
        near = difflib.get_close_matches(runner.lower(), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ConfigError(
            f"--runner {runner}: expected one of {enumerate_names(known, 'or')}{hint}"
        )
    return [f"{_OPTION}={_RUNNERS[runner]}", *_without_runner(configured)]


def _without_runner(args: Sequence[str]) -> list[str]:
    """Returns the options without the runner, which is `--runner=NAME` or two arguments."""
    return [
        arg
        for before, arg in zip(["", *args], args, strict=False)
        if _OPTION not in (before, arg) and not arg.startswith(f"{_OPTION}=")
    ]
