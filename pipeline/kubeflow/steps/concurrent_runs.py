"""Other runs of a pipeline that may be under way: on Kubeflow nothing keeps them apart."""

from __future__ import annotations

from datetime import datetime

from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.cluster_layout import settings_of
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog

_STEPS_IN_A_ROW = 3
"""So many steps may well take their whole time-out in one run."""


def is_alone(config: PipelineConfig, layout: Layout, run_id: str) -> bool:
    """Whether, by the ledger, no other run is under way; False where there is none to ask.

    Args:
      config: of the pipeline; a run that was killed without a word counts for some time-outs.
      layout: of the pipeline.
      run_id: the run that asks.
    """
    if not layout.is_kept:
        return False
    event_log = EventLog(layout.event_log)
    ended = {event.run for event in event_log.events(EventKind.FINISHED, EventKind.FAILED)}
    since = datetime.now().astimezone() - _STEPS_IN_A_ROW * settings_of(config).timeout
    return not any(
        event.run not in {run_id, *ended} and event.at > since
        for event in event_log.events(EventKind.STARTED)
    )
