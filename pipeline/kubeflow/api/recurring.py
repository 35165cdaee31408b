"""The recurring run of a pipeline: shows it, and changes it to what the config says."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import kfp_server_api as kfp_api

from pipeline.config.sections.kubeflow import KubeflowSettings
from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.api.client import Kubeflow
from pipeline.kubeflow.api.submission import ensure_experiment, ensure_version, runs_of
from pipeline.kubeflow.api.tasks import ENDED
from pipeline.kubeflow.cluster_layout import pipeline_name, settings_of
from pipeline.kubeflow.compiled import CompiledPipeline
from trainer_module.errors import ConfigError, ScopelineError

Say = Callable[[str], None]
_ENABLED = "ENABLED"
_MAX_CONCURRENCY = "1"


@dataclass(frozen=True)
class Recurring:
    """The properties of a recurring run that a config decides."""

    cron: str
    """Six fields, as Kubeflow has them: seconds first."""
    version: str
    """The name of the pipeline's version."""
    experiment: str
    service_account: str
    enabled: bool = True
    max_concurrency: str = _MAX_CONCURRENCY
    catches_up: bool = False
    parameters: str = ""
    """Values that differ from the defaults; configs give none."""
    id: str = ""

    def differences(self, wanted: Recurring) -> list[str]:
        """What is not as it should be, a line each."""
        pairs = {
            "cron": (self.cron, wanted.cron),
            "version": (self.version, wanted.version),
            "experiment": (self.experiment, wanted.experiment),
            "service account": (self.service_account, wanted.service_account),
            "enabled": (_yes_or_no(self.enabled), _yes_or_no(wanted.enabled)),
            "runs at a time": (self.max_concurrency, wanted.max_concurrency),
            "catches up": (_yes_or_no(self.catches_up), _yes_or_no(wanted.catches_up)),
            "parameters": (self.parameters, wanted.parameters),
        }
        return [
            f"{what}: {there or 'none'} -> {wanted or 'none'}"
            for what, (there, wanted) in pairs.items()
            if there != wanted
        ]


def cron_for_kubeflow(config: PipelineConfig) -> str:
    """The config's cron expression as Kubeflow takes it.

    Raises:
      ConfigError: there is none, or Kubeflow has no such schedules.
    """
    schedule = config.schedule_or_default
    if schedule.cron is None:
        raise ConfigError(
            "schedule.cron: there is none; a recurring run needs one, such as `0 3 * * *` for 3 "
            "o'clock every night"
        )
    if schedule.timezone != "UTC":
        raise ConfigError(
            f"schedule.timezone: found {schedule.timezone}; Kubeflow has one clock for the whole "
            "cluster, which shows UTC: leave the key out, and write `schedule.cron` in UTC"
        )
    *_, weekday = schedule.cron.split()
    if re.search(r"[LW#]", schedule.cron.upper().replace("JUL", "").replace("WED", "")):
        raise ConfigError(
            f"schedule.cron: found {schedule.cron}; Kubeflow does not know L, W and #"
        )
    if "7" in re.split(r"[,\-/]", weekday):
        raise ConfigError(
            f"schedule.cron: found {schedule.cron}; Kubeflow's days of the week are 0, which is "
            "Sunday, to 6"
        )
    return f"0 {schedule.cron}"


def list_recurring(kubeflow: Kubeflow, config: PipelineConfig) -> list[Recurring]:
    """The recurring runs of a pipeline, oldest first; those of others are left out."""
    name = pipeline_name(config)
    pipeline = kubeflow.pipeline_id(name)
    if pipeline is None:
        return []
    found = kubeflow.recurring_runs(name)
    return [
        _read(kubeflow, item)
        for item in found
        if item.pipeline_version_reference is not None
        and item.pipeline_version_reference.pipeline_id == pipeline
    ]


def apply(
    kubeflow: Kubeflow, config: PipelineConfig, compiled: CompiledPipeline, dry_run: bool, say: Say
) -> None:
    """Makes the pipeline's recurring run what the config says, after saying what differs.

    No call changes a recurring run, so a new one replaces it. The new one is created disabled;
    then the old one is disabled and the new one enabled. If that is interrupted, the next `apply`
    completes it.

    Args:
      kubeflow: where.
      config: with a schedule.
      compiled: of the config.
      dry_run: whether to say only what would be done.
      say: told what differs, and what is done.

    Raises:
      ConfigError: the schedule is none of Kubeflow's, or a call is refused.
    """
    settings = settings_of(config)
    cron = cron_for_kubeflow(config)
    experiment = kubeflow.experiment_id(settings.experiment)
    there = [
        replace(item, experiment=settings.experiment) if item.experiment == experiment else item
        for item in list_recurring(kubeflow, config)
    ]
    # If the config names no account, Kubeflow has filled in its default.
    account = settings.service_account or (there[-1].service_account if there else "")
    wanted = Recurring(cron, compiled.version, settings.experiment, account)
    right = next((item for item in there if not item.differences(wanted)), None)
    wrong = [item for item in there if item is not right]
    _say_plan(config.name, wanted, right, wrong, say)
    if dry_run or (right and not wrong):
        return
    if right is None:
        right = _find_disabled(wanted, there)
        new = right.id if right else _create(kubeflow, settings, compiled, wanted)
        _enable_instead([item.id for item in wrong if item.enabled], new, kubeflow)
    _delete(kubeflow, config, [item for item in wrong if item is not right], say)
    say("done")


def show(kubeflow: Kubeflow, config: PipelineConfig, say: Say) -> None:
    """Says which recurring runs the pipeline has."""
    there = list_recurring(kubeflow, config)
    if not there:
        say(f"{config.name}: there is no recurring run")
    for item in there:
        say(_describe(item))


def remove(kubeflow: Kubeflow, config: PipelineConfig, dry_run: bool, say: Say) -> None:
    """Deletes the pipeline's recurring runs; a run of theirs that is under way comes to its end."""
    there = list_recurring(kubeflow, config)
    if not there:
        say(f"{config.name}: there is no recurring run; nothing to do")
    for item in there:
        say(f"- {_describe(item)}")
    if there and not dry_run:
        _delete(kubeflow, config, there, say)


def _delete(
    kubeflow: Kubeflow, config: PipelineConfig, unwanted: list[Recurring], say: Say
) -> None:
    """Deletes recurring runs; those of which a run is under way are only disabled."""
    if not unwanted:
        return
    running = {run.recurring_run_id for run in runs_of(kubeflow, config) if run.state not in ENDED}
    for item in unwanted:
        if item.id not in running:
            kubeflow.delete(item.id)
            continue
        # Kubeflow before 2.16 would delete the run with it.
        if item.enabled:
            kubeflow.disable(item.id)
        say(f"  {item.id} is disabled; the next call deletes it, as a run of it is under way")


def _find_disabled(wanted: Recurring, there: list[Recurring]) -> Recurring | None:
    """One that differs only in being disabled, as an interrupted `apply` leaves it."""
    enabled = {item.id: replace(item, enabled=True) for item in there}
    return next((item for item in there if not enabled[item.id].differences(wanted)), None)


def _create(
    kubeflow: Kubeflow, settings: KubeflowSettings, compiled: CompiledPipeline, wanted: Recurring
) -> str:
    """Creates the recurring run, disabled."""
    version = ensure_version(kubeflow, compiled)
    return kubeflow.create_recurring_run(
        kfp_api.V2beta1RecurringRun(
            display_name=compiled.name,
            pipeline_version_reference=version.reference,
            experiment_id=ensure_experiment(kubeflow, settings.experiment),
            runtime_config=kfp_api.V2beta1RuntimeConfig(parameters={}),
            service_account=settings.service_account,
            trigger=kfp_api.V2beta1Trigger(
                cron_schedule=kfp_api.V2beta1CronSchedule(cron=wanted.cron)
            ),
            max_concurrency=wanted.max_concurrency,
            no_catchup=not wanted.catches_up,
            mode=kfp_api.RecurringRunMode.DISABLE,
        )
    )


def _enable_instead(enabled: list[str], new: str, kubeflow: Kubeflow) -> None:
    """Enables a recurring run instead of others; if that fails, enables the first of them again."""
    disabled = []
    try:
        for old in enabled:
            kubeflow.disable(old)
            disabled.append(old)
        kubeflow.enable(new)
    except BaseException:
        # The new one may be enabled although the answer was lost, and two must never be.
        with contextlib.suppress(ScopelineError):
            if disabled:
                kubeflow.disable(new)
                kubeflow.enable(disabled[0])
        raise


def _say_plan(
    name: str, wanted: Recurring, right: Recurring | None, wrong: list[Recurring], say: Say
) -> None:
    """Says what differs and what will be changed."""
    if right is not None and not wrong:
        say(f"{name}: the recurring run is as the config says; nothing to do")
        return
    say(f"{name}:")
    for item in wrong:
        say(f"- {_describe(item)}")
    if right is not None:
        say(f"  {_describe(right)}")
        return
    say(f"+ {_describe(wanted)}")
    for line in wrong[-1].differences(wanted) if wrong else []:
        say(f"    {line}")


def _describe(item: Recurring) -> str:
    state = "" if item.enabled else ", disabled"
    return f"{item.cron}  {item.version}{state}" + (f"  ({item.id})" if item.id else "")


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def _read(kubeflow: Kubeflow, item: Any) -> Recurring:
    """Reads a recurring run from the API's answer."""
    reference = item.pipeline_version_reference
    version = reference.pipeline_version_id
    schedule = item.trigger.cron_schedule if item.trigger else None
    parameters = (item.runtime_config.parameters if item.runtime_config else None) or {}
    return Recurring(
        cron=schedule.cron if schedule else "",
        # A recurring run without a version runs the newest one.
        version=(version and kubeflow.version_name(reference.pipeline_id, version)) or "",
        experiment=item.experiment_id or "",
        service_account=item.service_account or "",
        enabled=item.status == _ENABLED,
        max_concurrency=str(item.max_concurrency),
        catches_up=not item.no_catchup,
        parameters=", ".join(f"{name}={value}" for name, value in sorted(parameters.items())),
        id=item.recurring_run_id,
    )
