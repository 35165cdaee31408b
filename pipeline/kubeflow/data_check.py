"""Looks for new data where a volume is mounted, and submits a run if one is due.

It decides as the local scheduler does, but submits a run instead of starting it here. Runs by the
clock are not its task: Kubeflow starts them itself, by a recurring run.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING

from pipeline.config.sections.data import span_kind
from pipeline.config.sections.notify import Occasion
from pipeline.config.settings import PipelineConfig
from pipeline.exit_codes import EXIT_FAILED
from pipeline.kubeflow.api.client import Kubeflow
from pipeline.kubeflow.api.steps import ENDED
from pipeline.kubeflow.cluster_layout import (
    cluster_layout,
    seen_from_pods,
    settings_of,
    working_folder,
)
from pipeline.kubeflow.compiled import Parameters
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog
from pipeline.records.notify import check_secrets, deliveries, notify
from pipeline.schedule.decision import Due, NotDue, decide
from pipeline.schedule.health import check_staleness, last_push
from pipeline.schedule.history import read_history
from pipeline.schedule.record import note_decision
from trainer_module.errors import ConfigError

if TYPE_CHECKING:
    import kfp_server_api as kfp_api

RECENT_RUNS = 50
"""How many of the latest runs are searched for one that is under way."""
Submit = Callable[[Parameters], str]
"""Starts a run with parameters, and gives its id."""


@deliveries()
def check(
    config: PipelineConfig, kubeflow: Kubeflow, submit: Submit, once: bool, now: datetime
) -> str:
    """Decides, and submits what is due.

    Args:
      config: checked for Kubeflow.
      kubeflow: knows the runs.
      submit: starts one.
      once: whether to submit what is due, and to write the decision down; else it is only said.
      now: what the clock shows, with its time zone.

    Returns:
      What was decided, and why, in one line.

    Raises:
      ConfigError: the config asks for nothing that has to be looked for, a secret that
        notifications need is not set, or the volume or the ledger cannot be used.
    """
    scheduled = _without_clock(config)
    if once:
        check_secrets(scheduled.notify)
    layout = _change_to_volume(config)
    event_log = EventLog(layout.event_log)
    runs = list(islice(kubeflow.runs_of(config), RECENT_RUNS))
    for run in runs:
        if run.state not in ENDED:
            return f"nothing to do: run {run.run_id} is under way"
    if runs and once:
        _record_lost_end(scheduled, event_log, runs[0])
    decision = decide(scheduled, layout, event_log, now)
    if not once:
        return f"{'due' if isinstance(decision, Due) else 'not due'}: {decision.reason}"
    note_decision(scheduled, decision, event_log, now)
    check_staleness(scheduled, event_log, now, last_push(event_log, now))
    if isinstance(decision, NotDue):
        return f"nothing to do: {decision.reason}"
    return f"run {submit(_parameters(scheduled, decision))} is submitted: {decision.reason}"


def _without_clock(config: PipelineConfig) -> PipelineConfig:
    """The config as pods see it, without the clock, which is Kubeflow's."""
    schedule = config.schedule
    if schedule is None or not schedule.on_new_data:
        raise ConfigError(
            "schedule.on_new_data: there is nothing to look for; set it to true, or leave the "
            "clock to `kubeflow_runner.py schedule apply`"
        )
    timeless = schedule.model_copy(update={"cron": None})
    return seen_from_pods(config).model_copy(update={"schedule": timeless})


def _change_to_volume(config: PipelineConfig) -> Layout:
    """Changes to the folder at which relative paths of the config begin.

    Raises:
      ConfigError: the volume is not mounted here.
    """
    folder, layout = working_folder(config), cluster_layout(config)
    volume = settings_of(config).volume
    try:
        os.chdir(folder)
        layout.root.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        claim = volume.claim if volume else "a volume"
        raise ConfigError(
            f"{folder}: cannot be used ({error.strerror or error}); this command looks at the data "
            f"itself, in a pod that mounts `{claim}` there: `kubeflow_runner.py schedule manifest` "
            "writes a CronJob that does"
        ) from None
    return layout


def _record_lost_end(config: PipelineConfig, event_log: EventLog, run: kfp_api.V2beta1Run) -> None:
    """Writes down the end of a run that could not do so itself: killed, or never started."""
    run_id, state = run.run_id, run.state
    if event_log.events(EventKind.FINISHED, EventKind.FAILED, run=run_id):
        return
    history = read_history(event_log)
    if history.due is None and history.started is None:
        return  # The run was of another volume: this ledger knows nothing of it.
    message = f"run {run_id} on Kubeflow ended as {state.lower()}, and left no word"
    event_log.record(EventKind.FAILED, message, run=run_id, exit_code=EXIT_FAILED, how="ended")
    notify(
        config.notify,
        config.name,
        Occasion.FAILED,
        message,
        {"how": "ended"},
        event_log,
        run=run_id,
    )


def _parameters(config: PipelineConfig, due: Due) -> Parameters:
    if due.through is None:
        return {}
    return {"span": span_kind(config.data).show(due.through)}
