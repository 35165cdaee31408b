"""The Beam options for a value of `--runner`, such as `flink`."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from components.beam_workers.options import IN_PROCESS_ARGS
from trainer_module.errors import ConfigError, enumerate_names

DIRECT, CONFIG = "direct", "config"
"""The values of `--runner` for this process, and for the options in `beam.args`."""
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
      runner: `direct` for this process, `config` for `beam.args`, or the name of a runner; the
        runner's other options are those of `beam.args`.
      configured: `beam.args` of the config.

    Raises:
      ConfigError: there is no such runner, or the runner is `config` and `beam.args` is empty.
    """
    if runner == DIRECT:
        return list(IN_PROCESS_ARGS)
    if runner == CONFIG:
        if not configured:
            raise ConfigError(
                "--runner config: the config has no `beam.args`; add `beam.args`, or give the name "
                "of a runner."
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
    """Returns the options without `--runner=NAME`, or without `--runner` and the next argument."""
    return [
        arg
        for previous, arg in zip(["", *args], args, strict=False)
        if _OPTION not in (previous, arg) and not arg.startswith(f"{_OPTION}=")
    ]
