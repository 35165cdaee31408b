"""Whether other runs of a pipeline are under way: on Kubeflow no lock keeps them apart."""

from __future__ import annotations

from datetime import datetime

from pipeline.config.settings import PipelineConfig
from pipeline.kubeflow.cluster_layout import settings_of
from pipeline.layout import Layout
from pipeline.records.event_log import EventKind, EventLog

_STEPS_IN_A_ROW = 3
"""How many time-outs of a step one run is taken to last at most."""


def is_alone(config: PipelineConfig, layout: Layout, run_id: str) -> bool:
    """Whether the ledger knows of no other run that is under way; False without a ledger.

    Args:
      config: of the pipeline; a run that never recorded its end counts for some time-outs.
      layout: of the pipeline.
      run_id: the run that does not count.
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
