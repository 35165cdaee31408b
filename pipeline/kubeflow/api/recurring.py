"""Shows the recurring run of a pipeline, and makes the recurring run match the config."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.api.client import Kubeflow
from pipeline.kubeflow.api.steps import ENDED
from pipeline.kubeflow.cluster_layout import settings_of
from pipeline.kubeflow.compiled import CompiledPipeline
from pipeline.report.text import yes_or_no
from trainer_module.errors import ConfigError, ScopelineError

ShowLine = Callable[[str], None]
"""A function that shows a line to the user."""
_ENABLED = "enabled"


@dataclass(frozen=True)
class Recurring:
    """A recurring run, with the properties that follow from a config, as strings."""

    properties: dict[str, str]
    id: str = ""
    """The id on Kubeflow, or an empty string for a recurring run that does not exist yet."""

    @property
    def enabled(self) -> bool:
        """Whether the recurring run starts runs."""
        return self.properties[_ENABLED] == yes_or_no(True)

    def differences(self, wanted: Recurring, ignored: str = "") -> list[str]:
        """Returns a line for each property that differs from the wanted recurring run.

        Args:
          wanted: the recurring run to compare with.
          ignored: a property that is not compared.
        """
        return [
            f"{name}: {value or 'none'} -> {wanted.properties[name] or 'none'}"
            for name, value in self.properties.items()
            if name != ignored and value != wanted.properties[name]
        ]

    def __str__(self) -> str:
        state = "" if self.enabled else ", disabled"
        text = f"{self.properties['cron']}  {self.properties['version']}{state}"
        return text + (f"  ({self.id})" if self.id else "")


def cron_for_kubeflow(config: PipelineConfig) -> str:
    """Returns the config's cron expression for Kubeflow: six fields, seconds first.

    Raises:
      ConfigError: the config has no cron expression, or Kubeflow does not support it.
    """
    schedule = config.schedule_or_default
    if schedule.cron is None:
        raise ConfigError(
            "schedule.cron: this key is missing; a recurring run needs it, such as `0 3 * * *` "
            "for 3 o'clock every night"
        )
    if schedule.timezone != "UTC":
        raise ConfigError(
            f"schedule.timezone: found {schedule.timezone}; Kubeflow schedules all runs in UTC: "
            "leave the key out, and write `schedule.cron` in UTC"
        )
    *_, weekday = schedule.cron.split()
    if re.search(r"[LW#]", schedule.cron.upper().replace("JUL", "").replace("WED", "")):
        raise ConfigError(
            f"schedule.cron: found {schedule.cron}; Kubeflow does not support L, W and #"
        )
    if "7" in re.split(r"[,\-/]", weekday):
        raise ConfigError(
            f"schedule.cron: found {schedule.cron}; Kubeflow's days of the week are 0, which is "
            "Sunday, to 6"
        )
    return f"0 {schedule.cron}"


def apply(
    kubeflow: Kubeflow,
    config: PipelineConfig,
    compiled: CompiledPipeline,
    dry_run: bool,
    show_line: ShowLine,
) -> None:
    """Makes the pipeline's recurring run match the config; shows the differences first.

    The API cannot change a recurring run, so a new recurring run replaces the old recurring run.
    The new one is created disabled. Then the old one is disabled, and the new one is enabled. The
    next `apply` completes an interrupted replacement.

    Args:
      config: a config with a schedule.
      dry_run: whether to only show the differences.
      show_line: the function that shows a line.

    Raises:
      ConfigError: Kubeflow does not support the schedule, or refuses a call.
    """
    cron, existing = cron_for_kubeflow(config), _list(kubeflow, config)
    wanted = _wanted(config, cron, compiled.version, existing)
    current = next((item for item in existing if not item.differences(wanted)), None)
    outdated = [item for item in existing if item is not current]
    _show_plan(config.name, wanted, current, outdated, show_line)
    if dry_run or (current and not outdated):
        return
    if current is None:
        # An interrupted `apply` may have created a disabled recurring run.
        current = next((item for item in existing if not item.differences(wanted, _ENABLED)), None)
        if current is None:
            version = kubeflow.ensure_version(compiled)
            new = kubeflow.create_recurring_run(compiled.name, version, cron)
        else:
            new = current.id
        _replace_enabled([item.id for item in outdated if item.enabled], new, kubeflow)
    _delete(kubeflow, config, [item for item in outdated if item is not current], show_line)
    show_line("done")


def show(kubeflow: Kubeflow, config: PipelineConfig, show_line: ShowLine) -> None:
    """Shows the recurring runs of the pipeline."""
    existing = _list(kubeflow, config)
    if not existing:
        show_line(f"{config.name}: there is no recurring run")
    for item in existing:
        show_line(str(item))


def remove(kubeflow: Kubeflow, config: PipelineConfig, dry_run: bool, show_line: ShowLine) -> None:
    """Deletes the pipeline's recurring runs; runs in progress continue."""
    existing = _list(kubeflow, config)
    if not existing:
        show_line(f"{config.name}: there is no recurring run; nothing to do")
    for item in existing:
        show_line(f"- {item}")
    if existing and not dry_run:
        _delete(kubeflow, config, existing, show_line)


def _delete(
    kubeflow: Kubeflow, config: PipelineConfig, unwanted: list[Recurring], show_line: ShowLine
) -> None:
    """Deletes recurring runs, and disables recurring runs with a run in progress."""
    if not unwanted:
        return
    running = {run.recurring_run_id for run in kubeflow.runs_of(config) if run.state not in ENDED}
    for item in unwanted:
        if item.id not in running:
            kubeflow.delete(item.id)
            continue
        # Before 2.16, Kubeflow would also delete the run in progress.
        if item.enabled:
            kubeflow.disable(item.id)
        show_line(
            f"  {item.id} is disabled; the next call deletes it, as one of its runs is in progress"
        )


def _replace_enabled(enabled: list[str], new: str, kubeflow: Kubeflow) -> None:
    """Disables recurring runs and enables a new one; on failure, enables the first one again."""
    disabled = []
    try:
        for old in enabled:
            kubeflow.disable(old)
            disabled.append(old)
        kubeflow.enable(new)
    except BaseException:
        # The new recurring run may be enabled even if the response was lost. Two recurring runs
        # must never be enabled.
        with contextlib.suppress(ScopelineError):
            if disabled:
                kubeflow.disable(new)
                kubeflow.enable(disabled[0])
        raise


def _show_plan(
    name: str,
    wanted: Recurring,
    current: Recurring | None,
    outdated: list[Recurring],
    show_line: ShowLine,
) -> None:
    """Shows the differences and the planned changes."""
    if current is not None and not outdated:
        show_line(f"{name}: the recurring run agrees with the config; nothing to do")
        return
    show_line(f"{name}:")
    for item in outdated:
        show_line(f"- {item}")
    if current is not None:
        show_line(f"  {current}")
        return
    show_line(f"+ {wanted}")
    for line in outdated[-1].differences(wanted) if outdated else []:
        show_line(f"    {line}")


def _wanted(
    config: PipelineConfig, cron: str, version: str, existing: list[Recurring]
) -> Recurring:
    """Returns the recurring run that the config describes, without an id."""
    settings = settings_of(config)
    # If the config names no account, Kubeflow has set its default.
    default = existing[-1].properties["service account"] if existing else ""
    return Recurring(
        {
            "cron": cron,
            "version": version,
            "experiment": settings.experiment,
            "service account": settings.service_account or default,
            _ENABLED: yes_or_no(True),
            "runs at a time": "1",
            "catches up": yes_or_no(False),
            "parameters": "",
        }
    )


def _list(kubeflow: Kubeflow, config: PipelineConfig) -> list[Recurring]:
    """Returns the recurring runs of a pipeline, oldest first."""
    experiments = {kubeflow.experiment_id(): settings_of(config).experiment}
    return [_read(kubeflow, item, experiments) for item in kubeflow.recurring_runs(config)]


def _read(kubeflow: Kubeflow, item: Any, experiments: dict[str | None, str]) -> Recurring:
    """Returns a recurring run from the API's response, with the names of experiments by id."""
    reference = item.pipeline_version_reference
    version = reference.pipeline_version_id
    schedule = item.trigger.cron_schedule if item.trigger else None
    parameters = (item.runtime_config.parameters if item.runtime_config else None) or {}
    properties = {
        "cron": schedule.cron if schedule else "",
        # A recurring run without a version runs the newest version.
        "version": (version and kubeflow.version_name(reference.pipeline_id, version)) or "",
        "experiment": experiments.get(item.experiment_id) or item.experiment_id or "",
        "service account": item.service_account or "",
        _ENABLED: yes_or_no(item.status == "ENABLED"),
        "runs at a time": str(item.max_concurrency),
        "catches up": yes_or_no(not item.no_catchup),
        # These parameters differ from the defaults. `apply` sets no parameters.
        "parameters": ", ".join(f"{name}={value}" for name, value in sorted(parameters.items())),
    }
    return Recurring(properties, item.recurring_run_id)
